package stats

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// atMost is P(X ≤ k) of the binomial distribution, summed term by term with
// 300-bit numbers: slow, and sharing nothing with the code under test.
func atMost(k, n int, p float64) float64 {
	const bits = 300
	x := new(big.Float).SetPrec(bits).SetFloat64(p)
	y := new(big.Float).SetPrec(bits).Sub(big.NewFloat(1).SetPrec(bits), x)
	power := func(b *big.Float, e int) *big.Float {
		r := big.NewFloat(1).SetPrec(bits)
		for range e {
			r.Mul(r, b)
		}
		return r
	}
	sum := new(big.Float).SetPrec(bits)
	for i := 0; i <= k; i++ {
		term := new(big.Float).SetPrec(bits).SetInt(new(big.Int).Binomial(int64(n), int64(i)))
		term.Mul(term, power(x, i)).Mul(term, power(y, n-i))
		sum.Add(sum, term)
	}
	f, _ := sum.Float64()
	return f
}

func TestUpperBoundKnownValues(t *testing.T) {
	for _, c := range []struct {
		k, n       int
		confidence float64
		want       float64
	}{
		{0, 299, 0.95, 0.009969},
		{0, 1, 0.95, 0.95},
		{0, 59, 0.95, 0.0495076},
		{0, 3000, 0.95, 0.000998079},
		{1, 10, 0.95, 0.394163},
		{5, 10, 0.975, 0.812914},
		{9, 10, 0.95, 0.994884},
	} {
		t.Run(fmt.Sprintf("%d of %d at %g", c.k, c.n, c.confidence), func(t *testing.T) {
			assert.InEpsilon(t, c.want, UpperBound(c.k, c.n, c.confidence), 2e-5)
		})
	}
}

func TestZeroOf299IsJustUnderOnePercent(t *testing.T) {
	assert.Less(t, UpperBound(0, 299, 0.95), 0.01)
	assert.Greater(t, UpperBound(0, 298, 0.95), 0.01)
}

func TestUpperBoundAgainstTheDistributionItself(t *testing.T) {
	for _, confidence := range []float64{0.5, 0.9, 0.95, 0.99, 0.9999} {
		for _, n := range []int{1, 2, 3, 7, 20, 64, 150, 400} {
			for k := 0; k < n; k += max(1, n/7) {
				p := UpperBound(k, n, confidence)
				assert.InEpsilon(t, 1-confidence, atMost(k, n, p), 1e-8, "k=%d n=%d confidence=%g p=%g", k, n, confidence, p)
			}
		}
	}
}

func TestUpperBoundClaimsNothingWithoutGrounds(t *testing.T) {
	for name, got := range map[string]float64{
		"no cuts":                 UpperBound(0, 0, 0.95),
		"every cut lossy":         UpperBound(7, 7, 0.95),
		"more losses":             UpperBound(8, 7, 0.95),
		"negative losses":         UpperBound(-1, 7, 0.95),
		"negative cuts":           UpperBound(0, -7, 0.95),
		"confidence one":          UpperBound(0, 7, 1),
		"confidence zero":         UpperBound(0, 7, 0),
		"confidence a percentage": UpperBound(0, 7, 95),
		"confidence NaN":          UpperBound(0, 7, math.NaN()),
	} {
		assert.Equal(t, 1.0, got, name)
	}
}

func TestUpperBoundIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 100_000).Draw(t, "n")
		k := rapid.IntRange(0, n-1).Draw(t, "k")
		c := rapid.Float64Range(0.5, 0.9999).Draw(t, "confidence")
		p := UpperBound(k, n, c)
		assert.Greater(t, p, float64(k)/float64(n), "above the share seen")
		assert.LessOrEqual(t, p, 1.0)
		assert.LessOrEqual(t, p, UpperBound(k+1, n, c), "one more loss")
		assert.GreaterOrEqual(t, p, UpperBound(k, n+1, c), "one more cut")
	})
}

func TestCutsFor(t *testing.T) {
	assert.Equal(t, 299, CutsFor(0.01, 0.95))
	assert.Equal(t, 2995, CutsFor(0.001, 0.95))
	assert.Equal(t, 1, CutsFor(0.95, 0.95))
	for name, got := range map[string]int{
		"bound zero": CutsFor(0, 0.95), "bound one": CutsFor(1, 0.95), "bound NaN": CutsFor(math.NaN(), 0.95),
		"certainty": CutsFor(0.01, 1), "beyond counting": CutsFor(1e-12, 0.95),
	} {
		assert.Zero(t, got, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.Float64Range(1e-6, 0.999).Draw(t, "p")
		c := rapid.Float64Range(0.5, 0.9999).Draw(t, "confidence")
		n := CutsFor(p, c)
		assert.LessOrEqual(t, UpperBound(0, n, c), p)
		if n > 1 {
			assert.Greater(t, UpperBound(0, n-1, c), p, "one cut fewer is not enough")
		}
	})
}
