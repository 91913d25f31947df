package transporttest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// requireBodies checks the bodies at the hub, in order.
func (p *probe) requireBodies(want []*transport.Message) {
	p.Helper()
	texts := make([]string, len(want))
	for i, m := range want {
		texts[i] = string(m.Body)
	}
	if got := p.bodies(); !slices.Equal(got, texts) {
		p.Errorf("the hub got %q, want %q", got, texts)
	}
}

// requireDone checks that each of the tags below n was answered times times, without an error.
func (s *session) requireDone(n, times int) {
	s.p.Helper()
	for tag := range n {
		results := s.sink.doneErrors(uint16(tag))
		if len(results) != times {
			s.p.Errorf("tag %d got %d results, want %d", tag, len(results), times)
		}
		for _, err := range results {
			if err != nil {
				s.p.Errorf("tag %d: %v", tag, err)
			}
		}
	}
}

func eachMessageIsDoneOnce(p *probe) {
	s := p.start()
	messages := numbered(0, window)
	s.send(0, messages...)
	s.awaitDone()
	time.Sleep(waitLimit) // time for a second answer
	s.requireDone(window, 1)
	p.requireBodies(messages)
}

func messagesArriveInOrder(p *probe) {
	s := p.start()
	messages := numbered(0, 10*window)
	for i := 0; i < len(messages); {
		n := min(1+i%7, window-s.sink.inFlightCount(), len(messages)-i)
		if n > 0 {
			s.sendFree(messages[i : i+n])
			i += n
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	s.awaitDone()
	p.requireBodies(messages)
}

// sendFree sends messages under free tags.
func (s *session) sendFree(messages []*transport.Message) {
	var items []transport.Item
	s.sink.mu.Lock()
	tag := 0
	for _, m := range messages {
		for s.sink.inFlight[uint16(tag)] {
			tag++
		}
		items = append(items, transport.Item{Tag: uint16(tag), Msg: m})
		tag++
	}
	s.sink.mu.Unlock()
	s.sendItems(items)
}

func messagesArriveAsSent(p *probe) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 789e6, time.UTC)
	messages := []*transport.Message{
		{},
		{Body: []byte("plain")},
		{Body: []byte{0, 1, 0x7f, 0x80, 0xff, '\n'}},
		{Body: bytes.Repeat([]byte("large "), 20_000)},
		{
			ID: "id-1/ä?&=", CorrelationID: "c 1", ContentType: "application/json;charset=utf-8", ContentEncoding: "utf-8",
			Component: "thermostat/1 & ä", Created: at, Expires: at.Add(time.Hour), Body: []byte(`{"a":1}`),
			Properties: []transport.Property{{Name: "level", Value: "high temp"}, {Name: "sign", Value: "50% & more = #+/?€"},
				{Name: "empty", Value: ""}},
		},
	}
	s := p.start()
	s.send(0, messages...)
	s.awaitDone()
	s.requireDone(len(messages), 1)
	got := p.Hub.Received()
	if len(got) != len(messages) {
		p.Fatalf("the hub got %d messages, want %d", len(got), len(messages))
	}
	for i, m := range messages {
		if p.NoOrder {
			sortProperties(m)
			sortProperties(&got[i].Message)
		}
		if p.WholeSeconds && !m.Expires.IsZero() {
			m.Expires = m.Expires.Add(time.Second - 1).Truncate(time.Second)
		}
		if diff := difference(&got[i].Message, m); diff != "" {
			p.Errorf("message %d arrived with another %s: %.200q, want %.200q", i, diff, []any{got[i].Message}, []any{*m})
		}
	}
}

func sortProperties(m *transport.Message) {
	slices.SortFunc(m.Properties, func(a, b transport.Property) int { return strings.Compare(a.Name, b.Name) })
}

// difference returns the name of the first field in which the messages differ.
func difference(a, b *transport.Message) string {
	switch {
	case a.ID != b.ID:
		return "ID"
	case a.CorrelationID != b.CorrelationID:
		return "CorrelationID"
	case a.ContentType != b.ContentType:
		return "ContentType"
	case a.ContentEncoding != b.ContentEncoding:
		return "ContentEncoding"
	case a.Component != b.Component:
		return "Component"
	case !a.Created.Equal(b.Created):
		return "Created"
	case !a.Expires.Equal(b.Expires):
		return "Expires"
	case !slices.Equal(a.Properties, b.Properties):
		return "Properties"
	case !bytes.Equal(a.Body, b.Body):
		return "Body"
	}
	return ""
}

func batchIsTheCallersAgain(p *probe) {
	s := p.start()
	messages := numbered(0, 8)
	items := make([]transport.Item, 0, len(messages))
	for i, m := range messages {
		items = append(items, transport.Item{Tag: uint16(i), Msg: m})
	}
	s.sendItems(items)
	clear(items)
	s.awaitDone()
	p.requireBodies(messages)
}

func tagsAreReusable(p *probe) {
	s := p.start()
	messages := numbered(0, 100)
	for _, m := range messages {
		s.send(0, m)
		s.awaitDone()
	}
	s.requireDone(1, len(messages))
	p.requireBodies(messages)
	s.send(transport.MaxTags-1, numbered(100, 1)...) // the highest tag
	s.awaitDone()
}

func sendDoesNotWait(p *probe) {
	s := p.start()
	p.Hub.HoldAnswers(true)
	n := window
	if w := s.Info().Window; w > 0 {
		n = min(n, w)
	}
	began := time.Now()
	messages := numbered(0, n)
	s.send(0, messages[:n/2]...)
	s.send(n/2, messages[n/2:]...)
	if took := time.Since(began); took > atOnce {
		p.Errorf("Send blocked for %v", took)
	}
	time.Sleep(time.Second)
	if len(p.Hub.Received()) == 0 {
		p.Errorf("nothing was sent while answers were missing")
	}
	p.Hub.HoldAnswers(false)
	s.awaitDone()
	s.requireDone(n, 1)
	p.requireBodies(messages)
}

func notDoneBeforeTheAnswer(p *probe) {
	s := p.start()
	p.Hub.HoldAnswers(true)
	s.send(0, numbered(0, 3)...)
	time.Sleep(10 * time.Second)
	synctest.Wait()
	if n := s.sink.inFlightCount(); n != 3 {
		p.Errorf("%d messages are done that the hub did not answer", 3-n)
	}
	p.Hub.HoldAnswers(false)
	s.awaitDone()
	s.requireDone(3, 1)
}

func againIsMarked(p *probe) {
	s := p.start()
	m := numbered(0, 2)
	s.sendItems([]transport.Item{{Tag: 0, Resent: true, Msg: m[0]}, {Tag: 1, Msg: m[1]}})
	s.awaitDone()
	p.requireBodies(m)
	got := p.Hub.Received()
	if p.MarksResent && len(got) == 2 && (!got[0].Resent || got[1].Resent) {
		p.Errorf("marked as handed over again: %v and %v, want the first only", got[0].Resent, got[1].Resent)
	}
}

func topicsAreObeyed(p *probe) {
	s := p.start()
	m := numbered(0, 4)
	m[1].Topic, m[2].Retain = p.Topic, true
	if p.Topic == "" {
		m[1].Topic, m[2].Retain = "other/topic", false
	}
	s.send(0, m...)
	s.awaitDone()
	for tag := range m {
		results := s.sink.doneErrors(uint16(tag))
		refused := p.Topic == "" && tag == 1
		kind := transport.KindOf(errors.Join(results...))
		if len(results) != 1 || refused != (kind == transport.Unsupported || kind == transport.Forbidden) ||
			refused == (results[0] == nil) {
			p.Errorf("tag %d got %v, with a refusal expected: %v", tag, results, refused)
		}
	}
	if p.Topic == "" {
		p.requireBodies([]*transport.Message{m[0], m[2], m[3]})
		return
	}
	p.requireBodies(m)
	for i, r := range p.Hub.Received() {
		if (r.Topic == p.Topic) != (i == 1) || r.Retain != (i == 2) {
			p.Errorf("message %d came on topic %q with RETAIN %v", i, r.Topic, r.Retain)
		}
	}
}

func atMostOnceDoesNotWait(p *probe) {
	if p.Topic == "" {
		p.skip("the protocol has one way to send only")
	}
	s := p.start()
	p.Hub.HoldAnswers(true)
	m := numbered(0, 3)
	for _, m := range m {
		m.AtMostOnce = true
	}
	s.send(0, m...)
	time.Sleep(time.Second)
	for tag := range m {
		if got := s.sink.doneErrors(uint16(tag)); len(got) != 1 || !errors.Is(got[0], transport.ErrWritten) {
			p.Errorf("tag %d got %v, want %v", tag, got, transport.ErrWritten)
		}
	}
	p.requireBodies(m)
	for i, r := range p.Hub.Received() {
		if !r.AtMostOnce {
			p.Errorf("message %d came with another QoS than 0", i)
		}
	}
	p.Hub.HoldAnswers(false)
}

func tooLargeFailsAlone(p *probe) {
	s := p.start()
	limit := s.Info().MaxSize
	if limit == 0 {
		limit = transport.MaxMessageSize
	}
	m := numbered(0, 3)
	m[1].Body = []byte(strings.Repeat("x", limit+1))
	s.send(0, m...)
	s.awaitDone()
	for tag, want := range []error{nil, transport.TooLarge, nil} {
		results := s.sink.doneErrors(uint16(tag))
		if len(results) != 1 || transport.KindOf(results[0]) != transport.KindOf(want) ||
			(results[0] == nil) != (want == nil) {
			p.Errorf("tag %d got %v, want %v", tag, results, want)
		}
	}
	p.requireBodies([]*transport.Message{m[0], m[2]})
	select {
	case <-s.ended:
		p.Errorf("the session ended: %v", s.err)
	default:
	}
}
