package hub

import (
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// The tables of the registry: devices and modules by name, policies by name, and one record of
// counts.
const (
	tableDevices  = "devices"
	tablePolicies = "policies"
	tableCounts   = "counts"
)

// A deviceRecord is a Registration with its digests as bytes, because they are not text.
type deviceRecord struct {
	Registration
	Thumbprints, Issued [][]byte
}

// A policyRecord is a policy.
type policyRecord struct {
	Keys   identity.KeyPair
	Rights hubdata.Right
}

// A countsRecord keeps numbers unique across runs.
type countsRecord struct {
	Entries     int
	Generations map[string]int
}

func (h *Hub) addRegistryTables() {
	h.Records.Add(tableDevices, h.deviceRecord, keep.Decoded(h.restoreDevice))
	h.Records.Add(tablePolicies, h.policyRecord, keep.Decoded(h.restorePolicy))
	h.Records.Add(tableCounts, h.countsRecord, keep.Decoded(h.restoreCounts))
}

// touchDevice marks an entry of the registry as changed. The caller may hold any lock.
func (h *Hub) touchDevice(id identity.Identity) { h.Records.Touch(tableDevices, id.String()) }

func (h *Hub) deviceRecord(key string) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.registry[identity.SplitIdentity(key)]
	if r == nil {
		return nil
	}
	return keep.MustJSON(deviceRecord{*r, digestBytes(r.Thumbprints), digestBytes(r.Issued)})
}

func (h *Hub) restoreDevice(key string, r deviceRecord) error {
	r.Registration.Thumbprints, r.Registration.Issued = digestTexts(r.Thumbprints), digestTexts(r.Issued)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.enterLocked(identity.SplitIdentity(key), &r.Registration)
	return nil
}

func (h *Hub) policyRecord(key string) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.policies[key]
	if !ok {
		return nil
	}
	return keep.MustJSON(policyRecord{p.keys, p.rights})
}

func (h *Hub) restorePolicy(key string, r policyRecord) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policies[key] = policy{r.Keys, r.Rights}
	return nil
}

func (h *Hub) countsRecord(string) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return keep.MustJSON(countsRecord{h.entries, h.generations})
}

func (h *Hub) restoreCounts(_ string, r countsRecord) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = r.Entries
	if r.Generations != nil {
		h.generations = r.Generations
	}
	return nil
}

// orphaned reports whether a record belongs to an identity that is not registered, and marks it as
// changed, so that the store drops it. A kill during the removal of the identity leaves such
// records; another identity of that name must not get them.
func (h *Hub) orphaned(table, key string, id identity.Identity) bool {
	if h.Registered(id) {
		return false
	}
	h.Records.Touch(table, key)
	return true
}

// digestBytes keeps nil apart from an empty list: nil thumbprints mean that an authority signs the
// certificate.
func digestBytes(all []string) [][]byte {
	if all == nil {
		return nil
	}
	out := make([][]byte, len(all))
	for i, d := range all {
		out[i] = []byte(d)
	}
	return out
}

func digestTexts(all [][]byte) []string {
	if all == nil {
		return nil
	}
	out := make([]string, len(all))
	for i, d := range all {
		out[i] = string(d)
	}
	return out
}
