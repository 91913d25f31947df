package updates

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// A Download is a file, or a root key package, as a device downloads it.
type Download struct {
	Name     string
	Content  []byte
	ETag     string // with its quotes
	Modified time.Time
	Whole    bool // ranges are ignored
	Rate     int  // bytes a second; 0 = no limit
}

// File returns a file by its id, subject to faults; false for an unknown one.
func (s *Service) File(id string, take Taker) (Download, bool) {
	s.mu.Lock()
	f := s.files[id]
	s.mu.Unlock()
	if f == nil {
		return Download{}, false
	}
	d := Download{Name: f.name, Content: f.content, ETag: strconv.Quote(hex.EncodeToString(f.hash[:8])),
		Modified: f.created, Rate: s.o.BytesPerSecond}
	if wrong := take.take(fault.WrongFile); wrong != nil {
		wrongFiles[wrong.Text](&d)
	}
	if slow := take.take(fault.SlowFile); slow != nil {
		d.Rate = max(int(slow.Rate), 1)
	}
	return d, true
}

// wrongFiles are the texts of the fault WrongFile, which package fault documents.
var wrongFiles = map[string]func(*Download){
	"content": func(d *Download) {
		d.Content = bytes.Clone(d.Content)
		d.Content[len(d.Content)/2] ^= 1
	},
	"short": func(d *Download) { d.Content = d.Content[:len(d.Content)-1] },
	"long":  func(d *Download) { d.Content = append(slices.Clip(d.Content), 0) },
	"etag":  func(d *Download) { d.ETag = strconv.Quote(newUUID()) },
	"whole": func(d *Download) { d.Whole = true },
}

// RootKeys returns the present root key package, subject to faults.
func (s *Service) RootKeys(take Taker) Download {
	r := s.Ring()
	b := s.bundle(&r)
	wrong := take.take(fault.WrongRootKeys)
	if wrong != nil && wrongRootKeys[wrong.Text].keys != nil {
		wrongRootKeys[wrong.Text].keys(&b)
	}
	p := s.write(b)
	if wrong != nil && wrongRootKeys[wrong.Text].signatures != nil {
		p.Signatures = wrongRootKeys[wrong.Text].signatures(p.Signatures)
	}
	return Download{Name: "rootkeypackage.json", Content: keep.MustJSON(p), ETag: strconv.Quote(strconv.Itoa(b.Version)),
		Modified: time.Unix(b.Published, 0)}
}

// A wrongPackage is what the fault WrongRootKeys does to a root key package, before and after it is
// signed. Each step may be nil.
type wrongPackage struct {
	keys       func(*bundle)
	signatures func([]rootSignature) []rootSignature
}

// wrongRootKeys are the texts of the fault WrongRootKeys, which package fault documents.
var wrongRootKeys = map[string]wrongPackage{
	"forged": {keys: func(b *bundle) { b.signers = slices.Repeat([]string{unknownRoot}, len(b.names)) }},
	"older": {keys: func(b *bundle) {
		b.Version--
		b.DisabledRoot, b.DisabledKeys = []string{}, []keyDigest{}
	}},
	"test": {keys: func(b *bundle) { b.IsTest = true }},

	"signature": {signatures: func(all []rootSignature) []rootSignature {
		all[0].Signature = flip(all[0].Signature)
		return all
	}},
	"missing": {signatures: func(all []rootSignature) []rootSignature { return all[:len(all)-1] }},
	"order": {signatures: func(all []rootSignature) []rootSignature {
		slices.Reverse(all)
		return all
	}},
}
