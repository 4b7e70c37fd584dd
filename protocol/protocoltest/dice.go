package protocoltest

import "math/rand/v2"

// dice make every choice of a world, so that one seed, or one string of bytes, replays all of it.
type dice interface {
	IntN(n int) int // in [0, n)
}

func newDice(seed, stream uint64) dice { return rand.New(rand.NewPCG(seed, stream)) }

// bytesDice takes its choices from a fuzzer's bytes, and returns 0 when they run out.
type bytesDice struct{ data []byte }

func (d *bytesDice) IntN(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := int(d.data[0])
	d.data = d.data[1:]
	return b % n
}

// shuffle orders names by chance, as Envoy does.
func shuffle(d dice, names []string) []string {
	for i := len(names) - 1; i > 0; i-- {
		j := d.IntN(i + 1)
		names[i], names[j] = names[j], names[i]
	}
	return names
}
