"""A model of the protocol of bookings and Bindings, and an explorer of all its states."""
