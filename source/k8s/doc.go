// Package k8s follows EndpointSlices of a Kubernetes and tells which endpoints clusters of Chancery have by
// them: once all have been read, and whenever they are others.
//
// Nothing is told before the first complete list, and nothing changes while the API server is away. A watch that ends because
// what it had is too old (410 Gone) begins anew with a list, and what went meanwhile goes then.
//
// It is a module of its own: who runs Chancery without Kubernetes needs none of client-go. The program is cmd/chancery-k8s.
package k8s
