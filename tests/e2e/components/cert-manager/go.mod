module gas.e2e/cert-manager

go 1.24.0

require github.com/cert-manager/cert-manager v1.18.2
