package protoscan

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// message returns a message with a field of each kind.
func message() []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 300)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), "two")
	b = protowire.AppendFixed32(protowire.AppendTag(b, 3, protowire.Fixed32Type), 7)
	b = protowire.AppendFixed64(protowire.AppendTag(b, 4, protowire.Fixed64Type), 7)
	b = protowire.AppendTag(b, 5, protowire.StartGroupType)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), "in a group")
	b = protowire.AppendTag(b, 5, protowire.EndGroupType)
	return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), "last")
}

func TestFields(t *testing.T) {
	var numbers []protowire.Number
	var last Field
	for f, err := range Fields(message()) {
		if err != nil {
			t.Fatal(err)
		}
		if f.Number == 1 && f.Varint != 300 {
			t.Errorf("%d", f.Varint)
		}
		numbers, last = append(numbers, f.Number), f
	}
	if len(numbers) != 6 || string(last.Bytes) != "last" || cap(last.Bytes) != len(last.Bytes) {
		t.Errorf("%v, %q", numbers, last.Bytes)
	}
	for f := range Fields(message()) {
		if f.Number != 1 {
			t.Error("it goes on though nobody wants more")
		}
		break
	}
	for _, bad := range []string{"\x0a\x05ab", "\x08\xff", "\x80", "\x0d\x01", "\x0c", "\x2b\x12\x01a"} {
		var errs int
		for f, err := range Fields([]byte(bad)) {
			if err != nil {
				errs++
			}
			if f.Number != 0 {
				t.Errorf("%q: half a field is read: %v", bad, f)
			}
		}
		if errs != 1 {
			t.Errorf("%q: %d errors", bad, errs)
		}
	}
}

func TestSized(t *testing.T) {
	var got string
	take := func(num protowire.Number, v []byte) error {
		got += string(v) + " "
		return nil
	}
	if err := Sized(message(), take); err != nil || got != "two last " {
		t.Errorf("%q, %v", got, err)
	}
	if err := Sized([]byte("\x0a\x05ab"), take); err == nil {
		t.Error("half a field is read")
	}
	enough := errors.New("enough")
	if err := Sized(message(), func(protowire.Number, []byte) error { got = ""; return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}
