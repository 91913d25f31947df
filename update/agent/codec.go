package agent

import (
	"crypto/sha256"
	"encoding/binary"
)

// The stored state is the text stateMagic, the fields of state in order, and the beginning of the
// SHA-256 of all that. Numbers are varints, texts and lists have their length first.
const (
	stateMagic = "HUBAGT01"
	checkBytes = 8
	maxItems   = 2 * MaxFiles // of any list
)

func (s *state) encode() []byte {
	e := encoder(stateMagic)
	e.text(s.memo.AgentInfoETag)
	e.text(s.memo.ConfigETag)
	e.text(s.memo.RootKeysURL)
	e.id(s.installed)
	e.number(int64(len(s.ended)))
	for _, id := range s.ended {
		e.text(id)
	}
	e.result(&s.latest)
	e.number(int64(len(s.reports)))
	for i := range s.reports {
		r := &s.reports[i]
		e.text(r.WorkflowID)
		e.id(r.Installed)
		e.result(&r.Result)
		e.results(r.Steps)
	}
	if s.work == nil {
		e.number(0)
	} else {
		e.number(1)
		e.workflow(s.work)
	}
	return sealed(e)
}

// sealed appends the check to the fields.
func sealed(fields []byte) []byte {
	sum := sha256.Sum256(fields)
	return append(fields, sum[:checkBytes]...)
}

// decode reads a stored state and reports whether it is undamaged.
func (s *state) decode(p []byte) bool {
	body := len(p) - checkBytes
	if body < len(stateMagic) || string(p[:len(stateMagic)]) != stateMagic {
		return false
	}
	if sum := sha256.Sum256(p[:body]); string(sum[:checkBytes]) != string(p[body:]) {
		return false
	}
	d := decoder{p: p[len(stateMagic):body]}
	s.memo = Memo{AgentInfoETag: d.text(), ConfigETag: d.text(), RootKeysURL: d.text()}
	s.installed = d.id()
	s.ended = make([]string, d.count(maxEnded))
	for i := range s.ended {
		s.ended[i] = d.text()
	}
	s.latest = d.result()
	s.reports = make([]Report, d.count(maxReports))
	for i := range s.reports {
		s.reports[i] = Report{WorkflowID: d.text(), Installed: d.id(), Result: d.result(), Steps: d.results()}
	}
	if d.count(1) == 1 {
		s.work = d.workflow()
	}
	return !d.bad && len(d.p) == 0
}

type encoder []byte

func (e *encoder) number(n int64) { *e = binary.AppendVarint(*e, n) }

func (e *encoder) text(s string) {
	e.number(int64(len(s)))
	*e = append(*e, s...)
}

func (e *encoder) id(id UpdateID) {
	e.text(id.Provider)
	e.text(id.Name)
	e.text(id.Version)
}

func (e *encoder) result(r *Result) {
	e.number(int64(r.Outcome))
	e.number(int64(r.Origin))
	e.number(r.Code)
	e.number(int64(len(r.Extended)))
	for _, x := range r.Extended {
		e.number(int64(x))
	}
	e.text(r.Details)
}

func (e *encoder) results(list []Result) {
	e.number(int64(len(list)))
	for i := range list {
		e.result(&list[i])
	}
}

func (e *encoder) workflow(w *workflow) {
	e.text(w.offer.WorkflowID)
	e.text(string(w.offer.Manifest))
	e.text(w.offer.Signature)
	e.text(w.offer.RootKeysURL)
	e.number(int64(len(w.offer.URLs)))
	for id, url := range w.offer.URLs {
		e.text(id)
		e.text(url)
	}
	e.id(w.before)
	e.number(int64(w.phase))
	e.number(int64(w.step))
	restart := int64(0)
	if w.restart {
		restart = 1
	}
	e.number(restart)
	e.results(w.results)
	e.result(&w.final)
	if w.starts != 0 || w.have != 0 { // else versions without them can read it
		e.number(int64(w.starts))
		e.number(w.have)
	}
}

// decoder reads fields. After a malformed one all others are zero.
type decoder struct {
	p   []byte
	bad bool
}

// number returns a number that is at most limit and not negative.
func (d *decoder) number(limit int64) int64 {
	n := d.signed()
	if n < 0 || n > limit {
		d.bad = true
		return 0
	}
	return n
}

func (d *decoder) signed() int64 {
	n, size := binary.Varint(d.p)
	if d.bad || size <= 0 {
		d.bad = true
		return 0
	}
	d.p = d.p[size:]
	return n
}

func (d *decoder) count(limit int) int { return int(d.number(int64(limit))) }

func (d *decoder) text() string {
	n := d.number(int64(len(d.p)))
	if n > int64(len(d.p)) { // the number itself took some of them
		d.bad, n = true, 0
	}
	s := string(d.p[:n])
	d.p = d.p[n:]
	return s
}

func (d *decoder) id() UpdateID {
	return UpdateID{Provider: d.text(), Name: d.text(), Version: d.text()}
}

func (d *decoder) result() (r Result) {
	r.Outcome, r.Origin = Outcome(d.count(len(outcomes)-1)), Origin(d.count(len(origins)-1))
	r.Code = d.signed()
	for range d.count(maxItems) {
		r.Extended = append(r.Extended, uint32(d.number(1<<32-1)))
	}
	r.Details = d.text()
	return r
}

func (d *decoder) results() (list []Result) {
	for range d.count(MaxSteps) {
		list = append(list, d.result())
	}
	return list
}

func (d *decoder) workflow() *workflow {
	w := &workflow{offer: Offer{WorkflowID: d.text(), Manifest: []byte(d.text()), Signature: d.text(),
		RootKeysURL: d.text(), URLs: map[string]string{}}}
	for range d.count(maxItems) {
		id := d.text()
		w.offer.URLs[id] = d.text()
	}
	w.before = d.id()
	w.phase = Phase(d.count(len(phases) - 1))
	w.step = int(d.signed())
	w.restart = d.count(1) == 1
	w.results = d.results()
	w.final = d.result()
	if len(d.p) > 0 { // the state of an older version has no more
		w.starts, w.have = d.count(maxItems), d.number(1<<63-1)
	}
	return w
}
