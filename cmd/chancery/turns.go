package main

import "net"

// turns makes n listeners of one, which accept its connections in turn. Several
// servers that accept from one listener leave most connections to one of them.
func turns(l net.Listener, n int) []net.Listener {
	tokens := make([]chan struct{}, n)
	for i := range tokens {
		tokens[i] = make(chan struct{}, 1)
	}
	tokens[0] <- struct{}{}
	all := make([]net.Listener, n)
	for i := range all {
		all[i] = turn{l, tokens[i], tokens[(i+1)%n]}
	}
	return all
}

type turn struct {
	net.Listener
	mine, next chan struct{}
}

// Accept accepts one connection when its turn comes. An error is passed on as
// the turn is, so that the end of the listener reaches all.
func (t turn) Accept() (net.Conn, error) {
	<-t.mine
	c, err := t.Listener.Accept()
	t.next <- struct{}{}
	return c, err
}
