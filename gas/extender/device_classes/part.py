"""The part that lets pods use nodes of DRA drivers, by DeviceClasses that stand for managed resources."""

from gas.daemon.permissions import Permission
from gas.extender.part import Additions, Core, Part


def _build(core: Core) -> Additions:
    from gas.extender.device_classes.class_watch import ClassWatch
    from gas.extender.device_classes.device_classes import DeviceClasses

    classes = DeviceClasses(core.decider)
    watch = ClassWatch(core.api, classes, core.timing)
    return Additions(hooks=classes.hooks, prepare=(watch.tried,), tasks=(watch.run,))


DEVICE_CLASSES = Part(
    is_on=lambda _flags: True,
    build=_build,
    permissions=lambda _flags, _namespace: frozenset(
        Permission(verb, "deviceclasses", "resource.k8s.io", needed=False) for verb in ("list", "watch")
    ),
)
