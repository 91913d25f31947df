package hub

import (
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// policy is the hub's entry of an access policy. Guarded by Hub.mu.
type policy struct {
	keys   identity.KeyPair
	rights hubdata.Right
}

// AddPolicy makes an access policy with the given rights.
func (h *Hub) AddPolicy(name string, rights ...hubdata.Right) (hubdata.Policy, error) {
	if name == "" {
		return hubdata.Policy{}, errors.New("testbroker: policy without a name")
	}
	all := hubdata.Right(0)
	for _, r := range rights {
		all |= r
	}
	if len(rights) == 0 {
		all = hubdata.RightDeviceConnect
	}
	defer h.Records.Saved()
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.policies[name]; ok {
		return hubdata.Policy{}, fmt.Errorf("%w: policy %s", ErrExists, name)
	}
	keys := h.newKeysLocked("policy/" + name)
	h.policies[name] = policy{keys, all}
	h.Records.Touch(tablePolicies, name)
	return hubdata.Policy{HostName: h.Host, Name: name, PrimaryKey: keys.Primary, SecondaryKey: keys.Secondary}, nil
}

// Policy returns an access policy.
func (h *Hub) Policy(name string) (hubdata.Policy, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.policies[name]
	if !ok {
		return hubdata.Policy{}, fmt.Errorf("%w: policy %s", ErrNotFound, name)
	}
	return hubdata.Policy{HostName: h.Host, Name: name, PrimaryKey: p.keys.Primary, SecondaryKey: p.keys.Secondary}, nil
}

// policyKeysLocked returns the keys of a token's policy, if the policy has one of the rights.
func (h *Hub) policyKeysLocked(t identity.Token, need hubdata.Right) (identity.KeyPair, error) {
	p, ok := h.policies[t.Policy]
	switch {
	case t.Policy == "":
		return identity.KeyPair{}, fmt.Errorf("token for %q names no policy", t.Resource)
	case !ok:
		return identity.KeyPair{}, fmt.Errorf("token names the policy %q, which does not exist", t.Policy)
	case p.rights&need == 0:
		return identity.KeyPair{}, fmt.Errorf("the policy %q does not have the right", t.Policy)
	}
	return p.keys, nil
}

// PolicyRights returns the rights that a policy's token gives on a connection of a back end. A
// token that is signed with the text of the key is one of the Event Hubs endpoint, and connects no
// devices.
func (h *Hub) PolicyRights(t identity.Token) (hubdata.Right, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys, err := h.policyKeysLocked(t, hubdata.RightAll)
	if err == nil {
		err = h.unexpired(t)
	}
	switch {
	case err != nil:
		return 0, err
	case t.SignedBy(keys):
		return h.policies[t.Policy].rights, nil
	case t.SignedByText(keys):
		return h.policies[t.Policy].rights &^ hubdata.RightDeviceConnect, nil
	}
	return 0, errAnotherKey
}

// KeyRights returns the rights of a policy to a client that has one of its keys.
func (h *Hub) KeyRights(name, key string) (hubdata.Right, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.policies[name]
	for _, k := range [...]string{p.keys.Primary, p.keys.Secondary} {
		if ok && subtle.ConstantTimeCompare([]byte(k), []byte(key)) == 1 {
			return p.rights, nil
		}
	}
	return 0, fmt.Errorf("the policy %q does not exist or has another key", name)
}
