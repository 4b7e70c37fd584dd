package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

// Limits, in bytes, for texts from a server, which may have any length. The client cuts longer
// texts before it keeps them or sends them back.
const (
	maxName  = 256
	maxCause = 1 << 10
	maxNACK  = 64 << 10
)

// cut returns a text from a server with at most n bytes and "…". Strings of protobuf must be valid
// UTF-8.
func cut(s string, n int) string { return strings.ToValidUTF8(text.Head(s, n), "\uFFFD") }

// shortened returns the error with its text cut, because the client keeps the text as long as the
// resource is refused.
func shortened(err error) error {
	if err == nil || len(err.Error()) <= maxCause {
		return err
	}
	return errors.New(cut(err.Error(), maxCause))
}

// A nackText is the text of a NACK: a line for each bad resource.
type nackText struct {
	text    strings.Builder
	omitted int   // resources that did not fit
	limit   error // the [xds.LimitError] among the reasons; nil: none
}

func (c *nackText) add(name string, err error) {
	if over, is := errors.AsType[*xds.LimitError](err); is {
		c.limit = over
	}
	line := cut(err.Error(), maxCause)
	if name != "" {
		line = cut(name, maxName) + ": " + line
	}
	switch {
	case c.text.Len()+len(line) > maxNACK:
		c.omitted++
		return
	case c.text.Len() > 0:
		c.text.WriteByte('\n')
	}
	c.text.WriteString(line)
}

// err returns the error with this text, or nil if no resource was bad.
func (c *nackText) err() error {
	switch {
	case c.text.Len() == 0:
		return nil
	case c.omitted > 0:
		fmt.Fprintf(&c.text, "\nand %d more", c.omitted)
	}
	return &nack{c.text.String(), c.limit}
}

// A nack is the error of a refused response.
type nack struct {
	text  string
	limit error // nil: the response is within the limits
}

func (n *nack) Error() string { return n.text }
func (n *nack) Unwrap() error { return n.limit }
