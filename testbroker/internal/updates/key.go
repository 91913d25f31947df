package updates

import (
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
	"math/big"
	"math/rand/v2"
	"sync"
)

const exponent = 65537

// keys are the private keys made so far. A process makes each once, when it is needed first.
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

// newKey makes a key of 3072 bits of six primes, which takes a twentieth of the time of two. A key
// of an emulator protects nothing. Package rsa makes no keys that follow from a seed.
func newKey(random *rand.ChaCha8) *rsa.PrivateKey {
	one := big.NewInt(1)
	for {
		k := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: big.NewInt(1), E: exponent}}
		phi := big.NewInt(1)
		for range 6 {
			p := prime(random)
			k.Primes = append(k.Primes, p)
			k.N.Mul(k.N, p)
			phi.Mul(phi, new(big.Int).Sub(p, one))
		}
		if k.D = new(big.Int).ModInverse(big.NewInt(exponent), phi); k.D == nil { // the exponent is no unit
			continue
		}
		k.Precompute()
		if k.Validate() == nil {
			return k
		}
	}
}

// prime returns a prime of 512 bits. Its first four bits are set, so that six have 3072 bits.
func prime(random *rand.ChaCha8) *big.Int {
	var b [512 / 8]byte
	p := new(big.Int)
	for {
		random.Read(b[:])
		b[0] |= 0xf0
		b[len(b)-1] |= 1
		if p.SetBytes(b[:]).ProbablyPrime(0) {
			return p
		}
	}
}
