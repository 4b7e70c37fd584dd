package wire

import (
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// distorted returns a message with a few random changes of its fields, at any depth: fields are moved, repeated,
// removed, cut, split, given another number or another wire type. Lengths stay right, so that the change reaches the decoder
// of that depth.
func distorted(rnd *rand.Rand, b []byte) []byte {
	fields := fieldsOf(b)
	if len(fields) == 0 {
		return oddField(rnd, nil)
	}
	i := rnd.IntN(len(fields))
	switch f := fields[i]; rnd.IntN(10) {
	case 0, 1, 2: // inside
		num, typ, n := protowire.ConsumeTag(f)
		if data, size := protowire.ConsumeBytes(f[n:]); typ == protowire.BytesType && size > 0 {
			fields[i] = bytesField(num, distorted(rnd, data))
		}
	case 3:
		fields = slices.Insert(fields, rnd.IntN(len(fields)+1), f)
	case 4:
		fields = slices.Delete(fields, i, i+1)
	case 5:
		rnd.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	case 6:
		fields[i] = f[:rnd.IntN(len(f))]
	case 7: // another wire type, or another number
		num, _, n := protowire.ConsumeTag(f)
		if data, size := protowire.ConsumeBytes(f[n:]); size > 0 && rnd.IntN(2) == 0 {
			fields[i] = bytesField(protowire.Number(1+rnd.IntN(12)), data)
		} else {
			fields[i] = protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), rnd.Uint64()>>rnd.IntN(64))
		}
	case 8: // split: a decoder merges the parts of a message
		num, typ, n := protowire.ConsumeTag(f)
		if data, _ := protowire.ConsumeBytes(f[n:]); typ == protowire.BytesType && len(data) > 0 {
			inner := fieldsOf(data)
			at := rnd.IntN(len(inner) + 1)
			fields[i] = slices.Concat(bytesField(num, slices.Concat(inner[:at]...)), bytesField(num, slices.Concat(inner[at:]...)))
		}
	default:
		fields = slices.Insert(fields, rnd.IntN(len(fields)+1), oddField(rnd, f))
	}
	return slices.Concat(fields...)
}

// fieldsOf splits a message into its fields, up to the first malformed field.
func fieldsOf(b []byte) (fields [][]byte) {
	for len(b) > 0 {
		_, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return fields
		}
		fields, b = append(fields, b[:n]), b[n:]
	}
	return fields
}

// oddField returns a field with a random number, wire type and content. Some contents are texts that are not UTF-8, and some
// are the field f.
func oddField(rnd *rand.Rand, f []byte) []byte {
	num := protowire.Number(1 + rnd.IntN(12))
	switch rnd.IntN(5) {
	case 0:
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), rnd.Uint64()>>rnd.IntN(64))
	case 1:
		return protowire.AppendFixed32(protowire.AppendTag(nil, num, protowire.Fixed32Type), rnd.Uint32())
	case 2:
		return bytesField(num, []byte{0xff})
	case 3:
		return bytesField(num, f)
	}
	return bytesField(num, nil)
}
