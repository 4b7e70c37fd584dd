// Package real tests chancery-k8s with a real kube-apiserver and a real etcd, each a process: make
// k8s-real.
package real
