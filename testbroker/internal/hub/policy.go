package hub

import (
	"errors"
	"fmt"
	"time"
)

// Right is a set of rights of an access policy.
type Right uint8

// The rights.
const (
	RegistryRead Right = 1 << iota
	RegistryWrite
	ServiceConnect
	DeviceConnect

	AllRights = RegistryRead | RegistryWrite | ServiceConnect | DeviceConnect
)

// Policy is an access policy of the hub. Its keys sign tokens that have the policy's name in the
// field skn.
type Policy struct {
	// HostName is the name of the hub.
	HostName string
	// Name is the value of skn in tokens.
	Name string
	// PrimaryKey and SecondaryKey are 32 bytes each, in base64.
	PrimaryKey, SecondaryKey string
}

// ConnectionString returns the connection string of a back end, with the primary key.
func (p Policy) ConnectionString() string {
	return "HostName=" + p.HostName + ";SharedAccessKeyName=" + p.Name + ";SharedAccessKey=" + p.PrimaryKey
}

// String returns the policy's name without its keys.
func (p Policy) String() string { return "policy " + p.Name }

// GoString is String.
func (p Policy) GoString() string { return p.String() }

// policy is the hub's entry of an access policy. Guarded by Hub.mu.
type policy struct {
	keys   KeyPair
	rights Right
}

// AddPolicy makes an access policy with the given rights. Without rights it gets [DeviceConnect],
// with which any device can connect. A new hub has no policies.
func (h *Hub) AddPolicy(name string, rights ...Right) (Policy, error) {
	if name == "" {
		return Policy{}, errors.New("testbroker: policy without a name")
	}
	all := Right(0)
	for _, r := range rights {
		all |= r
	}
	if len(rights) == 0 {
		all = DeviceConnect
	}
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if _, ok := h.policies[name]; ok {
		return Policy{}, fmt.Errorf("%w: policy %s", ErrExists, name)
	}
	keys := h.NewKeysLocked("policy/" + name)
	h.policies[name] = policy{keys, all}
	return Policy{h.Host, name, keys.Primary, keys.Secondary}, nil
}

// policyKeysLocked returns the keys of a token's policy, if the policy has one of the rights.
func (h *Hub) policyKeysLocked(t Token, need Right) (KeyPair, error) {
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

// AuthorizePolicyLocked checks a token that requires one of the rights.
func (h *Hub) AuthorizePolicyLocked(t Token, need Right) error {
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
