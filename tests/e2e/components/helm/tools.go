//go:build tools

// Package components pins the Helm that the end-to-end tests install the chart with.
package components

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
