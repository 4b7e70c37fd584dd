package protocol

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits, in bytes, for texts from a server, which may have any length. The client cuts longer
// texts before it keeps them or sends them back.
const (
	maxName      = 256
	maxCause     = 1 << 10
	maxComplaint = 64 << 10
)

// cut returns a text unchanged, or its first bytes (the parameter most is the limit) and "…" if it
// is longer.
func cut(s string, most int) string {
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD") // protobuf strings must be valid
}

// brief returns the error with its text cut, because the client keeps the text as long as the
// resource is refused.
func brief(err error) error {
	if err == nil || len(err.Error()) <= maxCause {
		return err
	}
	return errors.New(cut(err.Error(), maxCause))
}

// A complaint is the text of a NACK: a line for each bad resource.
type complaint struct {
	text strings.Builder
	more int // resources that did not fit
}

func (c *complaint) add(name string, err error) {
	line := cut(err.Error(), maxCause)
	if name != "" {
		line = cut(name, maxName) + ": " + line
	}
	switch {
	case c.text.Len()+len(line) > maxComplaint:
		c.more++
		return
	case c.text.Len() > 0:
		c.text.WriteByte('\n')
	}
	c.text.WriteString(line)
}

// err returns the error with this text, or nil if no resource was bad.
func (c *complaint) err() error {
	switch {
	case c.text.Len() == 0:
		return nil
	case c.more > 0:
		fmt.Fprintf(&c.text, "\nand %d more", c.more)
	}
	return errors.New(c.text.String())
}
