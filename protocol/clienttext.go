package protocol

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// What a server sends may be of any length. It is cut, in bytes, where it would be kept, or
// sent back.
const (
	maxName      = 256
	maxCause     = 1 << 10
	maxComplaint = 64 << 10
)

// cut returns at most so many bytes of a text, and more only to say that it goes on.
func cut(s string, most int) string {
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD") // protobuf allows nothing else
}

// brief returns an error, or one that is cut: it is kept for as long as a resource is refused.
func brief(err error) error {
	if err == nil || len(err.Error()) <= maxCause {
		return err
	}
	return errors.New(cut(err.Error(), maxCause))
}

// A complaint is what a NACK says: a line for each bad resource.
type complaint struct {
	text strings.Builder
	more int // resources for which there was no room
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

// err returns nil if there is nothing to complain about.
func (c *complaint) err() error {
	switch {
	case c.text.Len() == 0:
		return nil
	case c.more > 0:
		fmt.Fprintf(&c.text, "\nand %d more", c.more)
	}
	return errors.New(c.text.String())
}
