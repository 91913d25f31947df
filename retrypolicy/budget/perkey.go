package budget

import (
	"container/list"
	"strings"
	"sync"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// PerKey has a separate policy, with its own quota, limiter or breaker, for each key. The key is
// Retrier.Key, for a device client its hub, for an httpretry.Transport the host of the URL. For
// tenants on one host, give the client or Transport of each tenant a policy of its own instead.
//
// A new key beyond the limit evicts the least recently used one, which starts again when it
// returns, so the limit should exceed the number of keys in use.
type PerKey struct {
	most  int
	build func(key string) retrypolicy.Policy
	first retrypolicy.Policy // of the empty key

	mu     sync.Mutex
	keys   map[string]*list.Element
	recent *list.List // of *keyed, the most recently used key in front
}

type keyed struct {
	key    string
	policy retrypolicy.Policy
}

// NewPerKey returns a PerKey for at most max keys. make returns the policy of a new key; it must
// not call the PerKey. NewPerKey calls it for the empty key and validates the result. If make later
// returns a policy that Validate refuses, that key does not retry.
func NewPerKey(max int, make func(key string) retrypolicy.Policy) (*PerKey, error) {
	if err := kit.Check("PerKey ",
		kit.Bad(max < 1, "max is below 1; give how many keys to remember"),
		kit.Bad(make == nil, "make is nil; give a function that makes the policy of a key")); err != nil {
		return nil, err
	}
	first := make("")
	if first == nil {
		return nil, kit.Invalid("the policy returned by PerKey's make is nil; give a policy, NoRetry{} for none")
	}
	if err := retrypolicy.Validate(first); err != nil {
		return nil, err
	}
	k := &PerKey{most: max, build: make, first: first, keys: map[string]*list.Element{}, recent: list.New()}
	k.keys[""] = k.recent.PushFront(&keyed{policy: first})
	return k, nil
}

// Decide calls the policy of the empty key.
func (k *PerKey) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return k.first.Decide(a) }

// Unwrap returns the policy of the empty key.
func (k *PerKey) Unwrap() retrypolicy.Policy { return k.first }

// Begin begins a series of the key's policy.
func (k *PerKey) Begin(start retrypolicy.Start) retrypolicy.Series {
	return retrypolicy.Inner(k.of(start.Key), start)
}

// Validate refuses a PerKey that NewPerKey did not make.
func (k *PerKey) Validate() error {
	if k == nil || k.build == nil {
		return kit.Invalid("PerKey is not made; use NewPerKey")
	}
	return nil
}

// Len returns the number of keys in memory.
func (k *PerKey) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.keys)
}

// of returns the key's policy and makes it the most recently used one.
func (k *PerKey) of(key string) retrypolicy.Policy {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.keys[key]; ok {
		k.recent.MoveToFront(e)
		return e.Value.(*keyed).policy
	}
	p := k.build(key)
	if retrypolicy.Validate(p) != nil {
		p = retrypolicy.NoRetry{}
	}
	if len(k.keys) >= k.most {
		oldest := k.recent.Back()
		delete(k.keys, k.recent.Remove(oldest).(*keyed).key)
	}
	// a clone: a key that is a substring of a long text must not keep that text in memory
	key = strings.Clone(key)
	k.keys[key] = k.recent.PushFront(&keyed{key, p})
	return p
}
