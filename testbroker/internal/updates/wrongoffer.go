package updates

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
)

// A wrongOffer is what the fault WrongOffer does to an offer, in this order. Each step may be nil.
type wrongOffer struct {
	deployment func(*Service, *deployment) *deployment
	manifest   func(*manifest)      // before it is signed
	signer     func(*ring, *signer) // of the manifest
	offer      func(*Offer)         // after the manifest was signed
}

// The names of keys that no device knows.
const (
	unknownRoot = "ADU.269901.R"
	forgedKey   = "ADU.269902.R.S"
)

const hugeManifest = 1 << 20

// wrongOffers are the texts of the fault WrongOffer, which package fault documents.
var wrongOffers = map[string]wrongOffer{
	"workflow": {deployment: (*Service).redeploy},

	"size":      {manifest: func(m *manifest) { m.eachFile(func(f *fileDocument) { f.Size++ }) }},
	"file hash": {manifest: func(m *manifest) { m.eachFile(func(f *fileDocument) { f.Hashes.SHA256 = otherHash }) }},
	"huge":      {manifest: func(m *manifest) { m.Instructions.Steps[0].Description = strings.Repeat("x", hugeManifest) }},

	"manifest hash": {signer: func(_ *ring, s *signer) { s.hash = sha256.Sum256(nil) }},
	"algorithm":     {signer: func(_ *ring, s *signer) { s.algorithm = "none" }},
	"unknown root":  {signer: func(_ *ring, s *signer) { s.rootID, s.root = unknownRoot, unknownRoot }},
	"forged root":   {signer: func(_ *ring, s *signer) { s.root = unknownRoot }},
	"test root":     {signer: func(_ *ring, s *signer) { s.rootID, s.root = s.root+".T", s.root+".T" }},
	"forged key":    {signer: func(_ *ring, s *signer) { s.key = forgedKey }},
	"disabled root": {signer: func(r *ring, s *signer) {
		if i := slices.IndexFunc(r.Roots, r.disabled); i >= 0 {
			s.rootID, s.root = r.Roots[i], r.Roots[i]
		}
	}},
	"revoked key": {signer: func(r *ring, s *signer) {
		if i := slices.IndexFunc(r.Signing, r.disabled); i >= 0 {
			s.key, s.vouched = r.Signing[i], r.Signing[i]
		}
	}},

	"manifest": {offer: func(o *Offer) {
		o.Manifest = bytes.Replace(o.Manifest, []byte(`"version":"`), []byte(`"version":"9`), 1)
	}},
	"signature": {offer: func(o *Offer) { o.Signature = flip(o.Signature) }},
	"no files":  {offer: func(o *Offer) { clear(o.URLs) }},
	"http": {offer: func(o *Offer) {
		for id, url := range o.URLs {
			o.URLs[id] = strings.Replace(url, "https://", "http://", 1)
		}
	}},
}

// otherHash is the hash of an empty text.
const otherHash = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="

func (m *manifest) eachFile(change func(*fileDocument)) {
	for _, f := range m.Files {
		change(f)
	}
}

// flip returns a token whose signature has another first character.
func flip(token string) string {
	i := strings.LastIndexByte(token, '.') + 1
	other := "A"
	if token[i] == 'A' {
		other = "B"
	}
	return token[:i] + other + token[i+1:]
}
