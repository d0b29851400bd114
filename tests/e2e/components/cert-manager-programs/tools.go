//go:build tools

// Package components pins the parts of cert-manager that the end-to-end tests run. The commands of cert-manager are not in
// the module proxy, so `cainjector` and `signer` start its packages.
package components

import (
	_ "gas.e2e/cert-manager-programs/cainjector"
	_ "gas.e2e/cert-manager-programs/signer"
)
