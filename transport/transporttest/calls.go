package transporttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// other is a delivery other than a message.
type other struct {
	kind    transport.Features
	name    string
	ref     []byte
	version int64
	body    string
}

// others returns the deliveries other than messages.
func (k *sink) others() []other {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]other(nil), k.rest...)
}

func (p *probe) twins() Twins {
	p.Helper()
	h, ok := p.Hub.(Twins)
	if p.Features&transport.FeatureTwin == 0 || !ok {
		p.skip("the transport or the hub has no twins")
	}
	return h
}

// want subscribes.
func (s *session) want(f transport.Features) {
	s.p.Helper()
	if reply := s.ask(&transport.Request{ID: 1000, Op: transport.OpSubscribe, Want: f}); reply.Err != nil {
		s.p.Fatalf("subscribing to %b: %v", f, reply.Err)
	}
}

// sameJSON fails unless two JSON texts are equal.
func (p *probe) sameJSON(what, got, want string) {
	p.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		p.Errorf("%s is no JSON: %q", what, got)
		return
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		panic(err)
	}
	if !reflect.DeepEqual(g, w) {
		p.Errorf("%s is %s, want %s", what, got, want)
	}
}

func twinIsReadAndPatched(p *probe) {
	h := p.twins()
	h.PatchDesired(`{"interval":30}`)
	s := p.start()
	s.want(transport.FeatureTwin)
	get := s.ask(&transport.Request{ID: 1, Op: transport.OpTwinGet})
	if get.Err != nil {
		p.Fatalf("twin get: %v", get.Err)
	}
	p.sameJSON("the twin", string(get.Body), `{"desired":{"interval":30,"$version":2},"reported":{"$version":1}}`)

	patch := s.ask(&transport.Request{ID: 2, Op: transport.OpTwinPatch,
		Body: []byte(`{"fw":"1.2","old":null,"deep":{"a":[1,"ä"]}}`)})
	if patch.Err != nil || patch.Version != 2 {
		p.Errorf("twin patch: version %d, %v; want version 2", patch.Version, patch.Err)
	}
	p.sameJSON("what was reported", h.Reported(), `{"fw":"1.2","deep":{"a":[1,"ä"]}}`)

	patch = s.ask(&transport.Request{ID: 3, Op: transport.OpTwinPatch, Version: 2, Body: []byte(`{"fw":null}`)})
	if patch.Err != nil || patch.Version != 3 {
		p.Errorf("twin patch of version 2: version %d, %v; want version 3", patch.Version, patch.Err)
	}
	p.sameJSON("what was reported", h.Reported(), `{"deep":{"a":[1,"ä"]}}`)
	if n := len(s.sink.others()); n > 0 {
		p.Errorf("%d deliveries came that were not subscribed to", n)
	}
}

func badPatchesAreRefused(p *probe) {
	h := p.twins()
	s := p.start()
	s.want(transport.FeatureTwin)
	for i, c := range []struct {
		version int64
		body    string
		want    transport.Kind
	}{
		{0, `{"a":`, transport.Invalid},
		{0, `{"a b":1}`, transport.Invalid},
		{7, `{"a":1}`, transport.Conflict},
	} {
		reply := s.ask(&transport.Request{ID: uint32(i + 1), Op: transport.OpTwinPatch, Version: c.version,
			Body: []byte(c.body)})
		e := transport.Find(reply.Err)
		if e == nil || e.Kind != c.want {
			p.Errorf("patch %s of version %d was replied to with %v, want %v", c.body, c.version, reply.Err, c.want)
		}
	}
	p.sameJSON("what was reported", h.Reported(), `{}`)
	if get := s.ask(&transport.Request{ID: 9, Op: transport.OpTwinGet}); get.Err != nil {
		p.Errorf("twin get after patches that were refused: %v", get.Err)
	}
}

func requestsAreAnsweredEach(p *probe) {
	p.twins()
	s := p.start()
	s.want(transport.FeatureTwin)
	const n = 20
	for i := range n {
		s.Do(&transport.Request{ID: uint32(100 + i), Op: transport.OpTwinGet})
	}
	for i := range n {
		p.eventually("not every request was replied to", func() bool {
			s.sink.mu.Lock()
			defer s.sink.mu.Unlock()
			return len(s.sink.replies[uint32(100+i)]) > 0
		})
	}
	synctest.Wait()
	s.sink.mu.Lock()
	defer s.sink.mu.Unlock()
	for i := range n {
		if got := s.sink.replies[uint32(100+i)]; len(got) != 1 || got[0].Err != nil {
			p.Errorf("request %d got %d replies: %v", i, len(got), got)
		}
	}
}

func desiredChangesComeInOrder(p *probe) {
	h := p.twins()
	if p.Features&transport.FeatureDesired == 0 {
		p.skip("the transport tells no changes of desired properties")
	}
	s := p.start()
	h.PatchDesired(`{"n":0}`)
	s.want(transport.FeatureTwin | transport.FeatureDesired)
	const n = 10
	unasked := 0
	if p.Unasked {
		unasked = 1
	}
	for i := range n {
		h.PatchDesired(`{"n":` + strconv.Itoa(i+1) + `,"gone":null}`)
	}
	p.eventually("not every change was told", func() bool { return len(s.sink.others()) >= n+unasked })
	synctest.Wait()
	all := s.sink.others()[unasked:]
	if len(all) != n {
		p.Errorf("%d changes were told, want %d", len(all), n)
	}
	for i, o := range all {
		version := int64(i + 3) // 1 at the start, 2 before the subscription
		if o.kind != transport.FeatureDesired || o.version != version {
			p.Errorf("delivery %d is of kind %b and version %d, want %b and %d", i, o.kind, o.version, transport.FeatureDesired,
				version)
		}
		p.sameJSON("the change", o.body, fmt.Sprintf(`{"n":%d,"gone":null,"$version":%d}`, i+1, version))
	}
}

func methodsAreCalled(p *probe) {
	h, ok := p.Hub.(Methods)
	if p.Features&transport.FeatureMethods == 0 || !ok {
		p.skip("the transport or the hub has no methods")
	}
	s := p.start()
	s.want(transport.FeatureMethods)
	type result struct {
		status int
		answer string
		err    error
	}
	// All names that a hub passes on, also those where "+", "#" and "%" have a meaning elsewhere.
	names := []string{"do-0", "get-Log_1.2!", "a+b#c", "50%", "50%25"}
	n := len(names)
	results := make([]chan result, n)
	for i := range n {
		results[i] = make(chan result, 1)
		go func() {
			status, answer, err := h.Call(names[i], `{"n":`+strconv.Itoa(i)+`}`)
			results[i] <- result{status, answer, err}
		}()
		p.eventually("a call was not delivered", func() bool { return len(s.sink.others()) > i })
	}
	all := s.sink.others()
	for i := n - 1; i >= 0; i-- { // in another order
		o := all[i]
		if o.kind != transport.FeatureMethods || o.name != names[i] || o.body != `{"n":`+strconv.Itoa(i)+`}` ||
			len(o.ref) == 0 {
			p.Errorf("call %d came as %+v", i, o)
		}
		r := &transport.Request{Op: transport.OpRespond, Ref: bytes.Clone(o.ref), Status: 200 + i,
			Body: []byte(`["` + strconv.Itoa(i) + `"]`)}
		if i == 0 {
			r.Body = nil
		}
		s.Do(r)
		for j := range r.Body {
			r.Body[j] = 'x'
		}
		clear(r.Ref)
		var got result
		select {
		case got = <-results[i]:
		case <-time.After(waitLimit):
			p.Fatalf("the answer to call %d did not arrive", i)
		}
		want := result{200 + i, `["` + strconv.Itoa(i) + `"]`, nil}
		if i == 0 && (got.answer == "null" || got.answer == "") {
			want.answer = got.answer
		}
		if got != want {
			p.Errorf("call %d was answered with %+v, want %+v", i, got, want)
		}
	}
	s.Do(&transport.Request{Op: transport.OpRespond, Ref: all[0].ref, Status: 200}) // to a call that has ended; ignored
	s.send(0, numbered(0, 1)...)
	s.awaitDone()
}

func lateAnswersAreLost(p *probe) {
	h, ok := p.Hub.(Methods)
	if p.Features&transport.FeatureMethods == 0 || !ok {
		p.skip("the transport or the hub has no methods")
	}
	s := p.start()
	s.want(transport.FeatureMethods)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _, _ = h.Call("late", "{}")
	}()
	p.eventually("the call was not delivered", func() bool { return len(s.sink.others()) > 0 })
	s.requireGoodbye()
	const id = 77
	s.Do(&transport.Request{ID: id, Op: transport.OpRespond, Ref: s.sink.others()[0].ref, Status: 200})
	s.sink.mu.Lock()
	all := s.sink.replies[id]
	s.sink.mu.Unlock()
	if len(all) != 1 || all[0].Err == nil {
		p.Errorf("an answer that cannot be sent was replied to with %+v, want one error", all)
	}
	<-over
}
