package updates

import (
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
)

const exponent = 65537

// keys are the private keys made so far. A key of 3072 bits costs a second, so a process makes each
// once, when it is needed first.
var keys sync.Map // of func() *rsa.PrivateKey, by keyName

type keyName struct {
	seed uint64
	name string
}

// processSeed is the seed of services without one.
var processSeed = sync.OnceValue(rand.Uint64)

// privateKey returns the key that follows from a seed and a name.
func privateKey(seed uint64, name string) *rsa.PrivateKey {
	k, _ := keys.LoadOrStore(keyName{seed, name}, sync.OnceValue(func() *rsa.PrivateKey {
		return newKey(rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "update key %d %s", seed, name))))
	}))
	return k.(func() *rsa.PrivateKey)()
}

// newKey makes a key of 3072 bits. Package rsa makes no keys that follow from a seed.
func newKey(random *rand.ChaCha8) *rsa.PrivateKey {
	one := big.NewInt(1)
	for {
		p, q := prime(random), prime(random)
		phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
		k := &rsa.PrivateKey{
			PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: exponent},
			D:         new(big.Int).ModInverse(big.NewInt(exponent), phi), Primes: []*big.Int{p, q},
		}
		if k.D == nil { // the exponent is no unit
			continue
		}
		k.Precompute()
		if k.Validate() == nil {
			return k
		}
	}
}

// smallPrimes are the odd primes below 2000. Most numbers have one as a factor, which is cheaper to
// find than by ProbablyPrime.
var smallPrimes = sync.OnceValue(func() (all []*big.Int) {
	for n := int64(3); n < 2000; n += 2 {
		if p := big.NewInt(n); p.ProbablyPrime(0) {
			all = append(all, p)
		}
	}
	return all
})

// prime returns a prime of 1536 bits, of which the first two are set.
func prime(random *rand.ChaCha8) *big.Int {
	var b [1536 / 8]byte
	p, rest := new(big.Int), new(big.Int)
	for {
		random.Read(b[:])
		b[0] |= 0xc0
		b[len(b)-1] |= 1
		p.SetBytes(b[:])
		divides := func(small *big.Int) bool { return rest.Mod(p, small).Sign() == 0 }
		if !slices.ContainsFunc(smallPrimes(), divides) && p.ProbablyPrime(0) {
			return p
		}
	}
}
