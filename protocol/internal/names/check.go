package names

import "fmt"

// Check returns an error if the order or the count of the entries is wrong. It is for tests.
func (l *Set) Check() error {
	n, last := 0, ""
	for i, c := range l.chunks {
		if len(c) == 0 || len(c) > chunkMax {
			return fmt.Errorf("chunk %d has %d entries", i, len(c))
		}
		for _, e := range c {
			if n > 0 && e.Name <= last {
				return fmt.Errorf("entry %q behind %q", e.Name, last)
			}
			if e.Told == nil {
				return fmt.Errorf("entry %q has no sent state", e.Name)
			}
			n, last = n+1, e.Name
		}
	}
	if n != l.Len() {
		return fmt.Errorf("%d entries, count %d", n, l.count)
	}
	return nil
}
