package text

import (
	"strconv"
	"time"
)

// Prefixed returns lead and text, or "" if text is empty.
func Prefixed(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}

// Since returns the time since t in one or two units: 4s, 18m, 3d2h. The result is "" for the zero time.
func Since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := max(time.Since(t), 0) // not negative, though the clocks of two machines differ
	day := 24 * time.Hour
	two := func(of, unit time.Duration, a, b string) string {
		s := strconv.Itoa(int(d/of)) + a
		if rest := d % of / unit; rest > 0 {
			s += strconv.Itoa(int(rest)) + b
		}
		return s
	}
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < day:
		return two(time.Hour, time.Minute, "h", "m")
	}
	return two(day, time.Hour, "d", "h")
}

// Number formats a number with separators, such as 1,204.
func Number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Amount returns a number with its noun: "1 client", "1,204 clients".
func Amount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Number(n) + " " + what + "s"
}
