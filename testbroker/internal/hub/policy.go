package hub

import (
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// policy is the hub's entry of an access policy. Guarded by Hub.mu.
type policy struct {
	keys   KeyPair
	rights hubdata.Right
}

// AddPolicy makes an access policy with the given rights. Without rights it gets
// [hubdata.DeviceConnect], with which any device can connect. A new hub has no policies.
func (h *Hub) AddPolicy(name string, rights ...hubdata.Right) (hubdata.Policy, error) {
	if name == "" {
		return hubdata.Policy{}, errors.New("testbroker: policy without a name")
	}
	all := hubdata.Right(0)
	for _, r := range rights {
		all |= r
	}
	if len(rights) == 0 {
		all = hubdata.DeviceConnect
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.policies[name]; ok {
		return hubdata.Policy{}, fmt.Errorf("%w: policy %s", ErrExists, name)
	}
	keys := h.newKeysLocked("policy/" + name)
	h.policies[name] = policy{keys, all}
	return hubdata.Policy{HostName: h.Host, Name: name, PrimaryKey: keys.Primary, SecondaryKey: keys.Secondary}, nil
}

// policyKeysLocked returns the keys of a token's policy, if the policy has one of the rights.
func (h *Hub) policyKeysLocked(t Token, need hubdata.Right) (KeyPair, error) {
	p, ok := h.policies[t.Policy]
	switch {
	case t.Policy == "":
		return KeyPair{}, fmt.Errorf("token for %q names no policy", t.Resource)
	case !ok:
		return KeyPair{}, fmt.Errorf("token names the policy %q, which does not exist", t.Policy)
	case p.rights&need == 0:
		return KeyPair{}, fmt.Errorf("the policy %q does not have the right", t.Policy)
	}
	return p.keys, nil
}

// authorizePolicyLocked checks a token that requires one of the rights.
func (h *Hub) authorizePolicyLocked(t Token, need hubdata.Right) error {
	keys, err := h.policyKeysLocked(t, need)
	now := h.Now()
	switch {
	case err != nil:
		return err
	case now.After(t.Deadline(h.grace)):
		return fmt.Errorf("token expired at %s, it is %s", time.Unix(t.expires, 0).UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	case !t.signedBy(keys):
		return errors.New("token is signed with another key")
	}
	return nil
}
