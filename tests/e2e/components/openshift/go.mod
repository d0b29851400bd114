module gas.e2e/openshift

go 1.24.0

require github.com/openshift/api v0.0.0-20260709102940-580f1c1ba691
