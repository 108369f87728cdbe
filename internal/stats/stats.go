// Package stats says what a number of cuts supports: an exact one-sided upper
// bound on the probability that a cut loses something, and the number of
// cuts that a bound takes.
//
// It guarantees that a bound is never below the exact Clopper–Pearson limit by
// more than one part in 10⁹, and that it claims nothing (1) when asked for
// something that has no answer. The bound assumes that the cuts are
// independent of each other; the functions cannot check that. All of them are
// pure and may be called concurrently.
package stats

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// UpperBound returns the one-sided Clopper–Pearson upper limit, at the given
// confidence, on the probability that one cut loses something, after k of n
// independent cuts did: the p at which k or fewer lossy cuts of n
// have the probability 1−confidence.
//
// It is 1, no claim, for n = 0 and for arguments that make no sense: k outside
// 0..n, a confidence outside the open interval 0..1.
func UpperBound(k, n int, confidence float64) float64 {
	if !proper(confidence) || k < 0 || k >= n {
		return 1
	}
	if k == 0 {
		// (1−p)ⁿ = 1−confidence has a closed form.
		return -math.Expm1(math.Log1p(-confidence) / float64(n))
	}
	// P(X ≤ k; n, p) = 1 − I_p(k+1, n−k), which grows with p. Bisection keeps the
	// end on the safe side; a quantile function would stop at an error of its
	// own choice, on either side.
	a, b := float64(k+1), float64(n-k)
	low, high := float64(k)/float64(n), 1.0
	for range 200 {
		mid := low + (high-low)/2
		if mid <= low || mid >= high {
			break
		}
		if mathext.RegIncBeta(a, b, mid) < confidence {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// CutsFor returns the least number of cuts, all without a loss, after which
// UpperBound is at most p at the given confidence: 299 for 1 % at 95 %.
// It is 0, no number is enough, when p or the confidence lies outside the open
// interval 0..1.
func CutsFor(p, confidence float64) int {
	if !proper(p) || !proper(confidence) {
		return 0
	}
	exact := math.Ceil(math.Log1p(-confidence) / math.Log1p(-p))
	if exact > math.MaxInt32 {
		return 0
	}
	n := max(int(exact), 1)
	// The quotient may be off by a rounding when it lies beside a whole number.
	for n > 1 && UpperBound(0, n-1, confidence) <= p {
		n--
	}
	for UpperBound(0, n, confidence) > p {
		n++
	}
	return n
}

func proper(x float64) bool { return x > 0 && x < 1 }
