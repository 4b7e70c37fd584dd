package inbound

import "encoding/binary"

// Constants of HTTP/2 frames: "All frames begin with a fixed 9-octet header
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

// frameCost is the memory in bytes that gRPC needs for a DATA frame in addition to its payload and padding, until the
// request is decoded: it keeps each frame as a buffer of its own.
const frameCost = 64

// preface is the number of bytes that a client sends before its first frame.
const preface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

// A frame is the header of a frame, without its length.
type frame struct {
	typ, flags byte
	stream     uint32
}

// ends reports whether the frame is the last of its stream in its direction.
func (f frame) ends() bool {
	return f.typ == typeReset || (f.typ == typeData || f.typ == typeHeaders) && f.flags&flagEndStream != 0
}

// A scanner parses the frames of one direction of a connection from pieces of any size. It validates nothing:
// for bytes that are not HTTP/2 it returns meaningless frames, and gRPC will end the connection. The zero
// value expects the start of a frame.
type scanner struct {
	skip   int32 // bytes of the preface that are still to come
	header [frameHeader]byte
	have   uint8 // bytes of the header so far

	// The current frame, once its header is complete.
	frame
	left int32 // missing bytes of its payload, without padding
	cost int32 // memory of the frame beyond its payload; the reader of the payload sets it to 0
	pad  int32 // missing bytes of padding; -1 if the next byte is the length of the padding
}

// next consumes the first part of b and returns the rest. The part belongs to one frame f: it completes its
// header (begins), has payload without padding (body), or completes the frame (ends). If b ends before any
// of these, ok is false.
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
		s.beginFrame()
		begins = true
	}
	if s.pad < 0 && s.left == 0 { // malformed: a padded frame without the length of its padding
		s.pad = 0
	}
	if s.pad < 0 && len(b) > 0 {
		s.pad = min(int32(b[0]), s.left-1)
		s.left -= 1 + s.pad
		s.cost += 1 + s.pad
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
	ends = s.left == 0 && s.pad == 0
	if ends {
		s.have = 0
	}
	return s.frame, body, b, begins, ends, begins || ends || len(body) > 0
}

// replies parses the frames that the server sends, for two facts: which streams end, and how many more bytes
// a client may send.
type replies struct {
	scanner
	grant [4]byte
	read  int32 // bytes of grant so far
}

// next consumes a frame or a part of it. If it completes a WINDOW_UPDATE, grant is the number of bytes.
func (s *replies) next(b []byte) (f frame, begins bool, grant int, rest []byte) {
	if s.skip == 0 && s.have == 0 && len(b) >= frameHeader { // fast path: a frame in one piece
		if n := frameHeader + length(b); len(b) >= n {
			f = frameOf(b)
			if f.typ == typeGrant && n == frameHeader+len(s.grant) {
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
		s.read += int32(copy(s.grant[s.read:], body))
		if ends && int(s.read) == len(s.grant) {
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

func (s *scanner) beginFrame() {
	s.frame, s.left = frameOf(s.header[:]), int32(length(s.header[:]))
	s.pad, s.cost = 0, frameCost
	if s.typ == typeData && s.flags&flagPadded != 0 {
		s.pad = -1
	}
}
