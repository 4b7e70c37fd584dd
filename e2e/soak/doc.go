// Package soak tests a server with random clients over gRPC. The clients
// subscribe, unsubscribe, refuse, fall silent and reconnect, while the
// configuration changes. At rest each client must hold the same resources as a
// new client with the same subscriptions.
package soak
