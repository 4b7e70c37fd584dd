package client

// RawCodec is for servers of tests.
type RawCodec = rawCodec
