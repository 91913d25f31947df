package budget

import (
	"strings"
	"sync"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/retrypolicy/internal/wrap"
)

// PerKey has a policy of its own, with its own quota, limiter or breaker, for each Attempt.Key: a
// host, a tenant, a device. What happens under one key does not reach another.
//
// At most a set number of keys is remembered; the one that was not used for longest makes room and
// begins anew when it comes back, so the number should be above that of keys in use at a time. Safe
// for concurrent use; the lock is not held while a key's policy is asked.
type PerKey struct {
	most  int
	build func(key string) retrypolicy.Policy
	first retrypolicy.Policy // of the empty key

	mu   sync.Mutex
	keys map[string]*keyed
	ring keyed // next is the key used last, prev the one to go first
}

type keyed struct {
	key        string
	policy     retrypolicy.Policy
	prev, next *keyed
}

// NewPerKey makes one for at most max keys; make makes the policy of a key that is new. It is
// called under a lock: it must not ask the PerKey. It is called once here, for the empty key, to
// see that what it makes is valid; what it makes later and Validate refuses does not retry.
func NewPerKey(max int, make func(key string) retrypolicy.Policy) (*PerKey, error) {
	switch {
	case max < 1:
		return nil, failure.Invalid("PerKey max is below 1; give how many keys to remember")
	case make == nil:
		return nil, failure.Invalid("PerKey make is nil; give a function that makes the policy of a key")
	}
	first := make("")
	if err := wrap.Within("what PerKey's make returns", first); err != nil {
		return nil, err
	}
	k := &PerKey{most: max, build: make, first: first, keys: map[string]*keyed{}}
	k.ring.next, k.ring.prev = &k.ring, &k.ring
	k.insert(&keyed{policy: first})
	return k, nil
}

// Decide asks the key's policy.
func (k *PerKey) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return k.of(a.Key).Decide(a) }

// Observe tells the key's policy.
func (k *PerKey) Observe(a retrypolicy.Attempt) { retrypolicy.Observe(k.of(a.Key), a) }

// Withdraw tells the key's policy.
func (k *PerKey) Withdraw(a retrypolicy.Attempt) { retrypolicy.Withdraw(k.of(a.Key), a) }

// Admit asks the key's policy.
func (k *PerKey) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Admit(k.of(a.Key), a)
}

// Validate refuses what NewPerKey did not make.
func (k *PerKey) Validate() error {
	if k == nil || k.build == nil {
		return failure.Invalid("PerKey is not made; use NewPerKey")
	}
	return nil
}

// Len is how many keys are remembered.
func (k *PerKey) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.keys)
}

// of returns the key's policy, which is the one used last now.
func (k *PerKey) of(key string) retrypolicy.Policy {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.keys[key]; ok {
		if k.ring.next != e {
			e.prev.next, e.next.prev = e.next, e.prev
			k.link(e)
		}
		return e.policy
	}
	p := k.build(key)
	if retrypolicy.Validate(p) != nil {
		p = retrypolicy.NoRetry{}
	}
	if len(k.keys) >= k.most {
		oldest := k.ring.prev
		oldest.prev.next, oldest.next.prev = oldest.next, oldest.prev
		delete(k.keys, oldest.key)
	}
	k.insert(&keyed{key: strings.Clone(key), policy: p}) // a clone, lest a key that is part of a long text keeps all of it
	return p
}

func (k *PerKey) insert(e *keyed) {
	k.keys[e.key] = e
	k.link(e)
}

// link puts e first.
func (k *PerKey) link(e *keyed) {
	e.prev, e.next = &k.ring, k.ring.next
	e.prev.next, e.next.prev = e, e
}

// Inside returns the policy of the empty key, which stands for all.
func (k *PerKey) Inside() retrypolicy.Policy {
	if k == nil {
		return nil
	}
	return k.first
}

// Shared returns nil: what the keys share is in their policies.
func (*PerKey) Shared() any { return nil }

// Charges reports false.
func (*PerKey) Charges() bool { return false }
