// Package k8s follows the EndpointSlices of a Kubernetes cluster, and reports the endpoints of
// Chancery clusters that come from them. It reports all endpoints of a cluster once all slices have
// been read, and again at each change.
//
// It reports nothing before the first complete list, and no change while the API server is away. If a
// watch ends because its version is too old (410 Gone), the package lists all slices again, and then
// reports removals since.
//
// It is a module of its own, so that Chancery without Kubernetes does not depend on client-go. The
// program is cmd/chancery-k8s.
package k8s
