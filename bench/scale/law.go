package scale

import (
	"fmt"
	"math"
)

// flat is the ratio up to which two values count as the same: machines that others
// share make times uncertain by as much.
const flat = 1.5

// Law says how a figure grows between its first and its last number: it is flat, or
// it follows a power of the number.
func (f *Figure) Law() string {
	first, last := f.At[0], f.At[len(f.At)-1]
	if first.N == last.N {
		return "–"
	}
	if first.Median <= 0 || last.Median <= 0 {
		return "–"
	}
	ratio := last.Median / first.Median
	switch {
	case ratio <= flat && ratio >= 1/flat:
		return "flat"
	case ratio < 1:
		return "falls"
	case first.N == 0:
		return fmt.Sprintf("× %.2g", ratio)
	}
	exponent := math.Log(ratio) / math.Log(float64(last.N)/float64(first.N))
	switch {
	case exponent > 0.9 && exponent < 1.1:
		return "as the number"
	case exponent < 0.15:
		return fmt.Sprintf("× %.2g", ratio)
	}
	return fmt.Sprintf("as the number to the %.2f", exponent)
}

// spoken returns a point's median, with its spread where that is 10 % or more.
func spoken(p Point) string {
	if p.Median < 0 { // less than what comes and goes meanwhile
		return "–"
	}
	s := short(p.Median)
	if p.Max > 1.05*p.Median || p.Min < 0.95*p.Median {
		if least, most := short(p.Min), short(p.Max); least != most {
			s += fmt.Sprintf(" (%s–%s)", least, most)
		}
	}
	return s
}

// short returns a value with three digits.
func short(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 1000:
		return Grouped(int(math.Round(v)))
	case abs >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case abs >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Grouped returns a number with commas between thousands.
func Grouped(n int) string {
	s := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Find returns a figure by its name, or nil.
func (r *Report) Find(of, name string) *Figure {
	for _, f := range r.Figures {
		if f.Of == of && f.Name == name {
			return f
		}
	}
	return nil
}
