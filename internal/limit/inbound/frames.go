package inbound

import "encoding/binary"

// What is told of a frame of HTTP/2: "All frames begin with a fixed 9-octet header
// followed by a variable-length frame payload." (RFC 9113, 4.1)
const (
	frameHeader = 9

	typeData    = 0x0
	typeHeaders = 0x1
	typeReset   = 0x3
	typeGrant   = 0x8 // WINDOW_UPDATE

	flagEndStream = 0x1
	flagPadded    = 0x8
)

// preface is how many bytes a client sends before its first frame.
const preface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

// A frame is the header of one, without its length.
type frame struct {
	typ, flags byte
	stream     uint32
}

// ends reports whether the frame is the last of its stream in its direction.
func (f frame) ends() bool {
	return f.typ == typeReset || (f.typ == typeData || f.typ == typeHeaders) && f.flags&flagEndStream != 0
}

// A scanner follows the frames of one direction of a connection, whatever the pieces
// are in which its bytes come. It judges nothing: bytes that are no HTTP/2 are frames of
// some kind to it, and whoever reads them will end the connection. The zero value is at
// the beginning of a frame.
type scanner struct {
	skip   int32 // bytes before the next header: of the preface
	header [frameHeader]byte
	have   uint8 // bytes of the header

	// Of the frame whose header is complete.
	frame
	left int32 // bytes of its payload that have not come, padding not counted
	pad  int32 // bytes of padding that follow; -1: how many says the next byte
}

// next returns what the beginning of b is: the end of a frame's header, or a part of its
// payload, of which body is what is no padding. It returns the rest of b. begins and ends
// say whether the frame's first or last byte is in what was taken; ok is false if all of
// b was taken and nothing is to be told.
func (s *scanner) next(b []byte) (f frame, body, rest []byte, begins, ends, ok bool) {
	if n := min(int(s.skip), len(b)); n > 0 {
		s.skip -= int32(n)
		b = b[n:]
	}
	if s.have < frameHeader {
		n := copy(s.header[s.have:], b)
		s.have += uint8(n)
		b = b[n:]
		if s.have < frameHeader {
			return f, nil, nil, false, false, false
		}
		s.begin()
		begins = true
	}
	if s.pad < 0 && s.left == 0 { // a padded frame without a length of its padding
		s.pad = 0
	}
	if s.pad < 0 && len(b) > 0 {
		s.pad = min(int32(b[0]), s.left-1)
		s.left -= 1 + s.pad
		b = b[1:]
	}
	if s.pad >= 0 {
		n := min(int(s.left), len(b))
		s.left -= int32(n)
		body, b = b[:n], b[n:]
		if s.left == 0 {
			n := min(int(s.pad), len(b))
			s.pad -= int32(n)
			b = b[n:]
		}
	}
	if ends = s.left == 0 && s.pad == 0; ends {
		s.have = 0
	}
	return s.frame, body, b, begins, ends, begins || ends || len(body) > 0
}

// replies follow what a server sends: which streams it ends, and how much more of which
// it takes.
type replies struct {
	scanner
	grant [4]byte
	read  int32 // bytes of grant
}

// next passes over a frame, or a part of it. grant is by how many bytes the window of
// its stream grows, if it says so and is whole.
func (s *replies) next(b []byte) (f frame, begins bool, grant int, rest []byte) {
	if s.skip == 0 && s.have == 0 && len(b) >= frameHeader { // it is whole
		if n := frameHeader + length(b); len(b) >= n {
			if f = frameOf(b); f.typ == typeGrant && n == frameHeader+len(s.grant) {
				grant = granted(b[frameHeader:])
			}
			return f, true, grant, b[n:]
		}
	}
	f, body, rest, begins, ends, _ := s.scanner.next(b)
	if begins {
		s.read = 0
	}
	if f.typ == typeGrant {
		if s.read += int32(copy(s.grant[s.read:], body)); ends && int(s.read) == len(s.grant) {
			grant = granted(s.grant[:])
		}
	}
	return f, begins, grant, rest
}

func granted(payload []byte) int { return int(binary.BigEndian.Uint32(payload) &^ (1 << 31)) }

func length(header []byte) int {
	return int(header[0])<<16 | int(header[1])<<8 | int(header[2])
}

func frameOf(header []byte) frame {
	return frame{header[3], header[4], binary.BigEndian.Uint32(header[5:]) &^ (1 << 31)}
}

func (s *scanner) begin() {
	s.frame, s.left = frameOf(s.header[:]), int32(length(s.header[:]))
	s.pad = 0
	if s.typ == typeData && s.flags&flagPadded != 0 {
		s.pad = -1
	}
}
