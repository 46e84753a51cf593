// Package kubernetes has the test of the manifests of docs/kubernetes.md.
package kubernetes
