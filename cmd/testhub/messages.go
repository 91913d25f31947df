package main

import (
	"context"
	"encoding/base64"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

const (
	defaultPage = 1000
	maxPage     = 10_000 // messages in one answer
)

// A message is a telemetry message in the API.
type message struct {
	// N is its position among all stored messages, from 0.
	N               int               `json:"n"`
	Device          string            `json:"device"`
	MessageID       string            `json:"messageId,omitempty"`
	CorrelationID   string            `json:"correlationId,omitempty"`
	ContentType     string            `json:"contentType,omitempty"`
	ContentEncoding string            `json:"contentEncoding,omitempty"`
	Component       string            `json:"component,omitempty"`
	CreationTime    string            `json:"creationTime,omitempty"`
	Expiry          string            `json:"expiry,omitempty"`
	System          map[string]string `json:"system,omitempty"`
	Properties      map[string]string `json:"properties,omitempty"`
	body
	// Bytes is the size of the whole body; 0 unless the shown one is cut.
	Bytes         int       `json:"bytes,omitempty"`
	ResponseTopic string    `json:"responseTopic,omitempty"`
	Topic         string    `json:"topic"`
	Retain        bool      `json:"retain,omitempty"`
	Will          bool      `json:"will,omitempty"`
	Unrouted      bool      `json:"unrouted,omitempty"`
	Protocol      string    `json:"protocol"`
	QoS           byte      `json:"qos"`
	Dup           bool      `json:"dup,omitempty"`
	Connection    uint64    `json:"connection"`
	Received      time.Time `json:"received"`
}

// body is a payload: text if it is UTF-8, otherwise base64.
type body struct {
	Body       *string `json:"body,omitempty"`
	BodyBase64 *string `json:"bodyBase64,omitempty"`
}

func showBody(b []byte) body {
	if s := string(b); utf8.ValidString(s) {
		return body{Body: &s}
	}
	s := base64.StdEncoding.EncodeToString(b)
	return body{BodyBase64: &s}
}

// cut shortens a body to at most so many bytes, and to whole characters; -1 leaves it as it is.
func (m *message) cut(most int) {
	if m.BodyBase64 != nil {
		size := base64.StdEncoding.DecodedLen(len(*m.BodyBase64)) - strings.Count(*m.BodyBase64, "=")
		if most >= 0 && size > most {
			short := (*m.BodyBase64)[:most/3*4]
			m.BodyBase64, m.Bytes = &short, size
		}
		return
	}
	if most < 0 || len(*m.Body) <= most {
		return
	}
	end := most
	for !utf8.RuneStart((*m.Body)[end]) {
		end--
	}
	short := (*m.Body)[:end]
	m.Body, m.Bytes = &short, len(*m.Body)
}

// showProperties converts properties to an object. Of properties with the same name the first wins.
func showProperties(all []hubdata.Property) map[string]string {
	m := make(map[string]string, len(all))
	for _, p := range all {
		if _, ok := m[p.Name]; !ok {
			m[p.Name] = p.Value
		}
	}
	return m
}

func showMessage(m *hubdata.Message) message {
	return message{
		N: m.Sequence - 1, Device: join(m.DeviceID, m.ModuleID), MessageID: m.MessageID, CorrelationID: m.CorrelationID,
		ContentType:     m.ContentType,
		ContentEncoding: m.ContentEncoding, Component: m.Component, CreationTime: m.CreationTime, Expiry: m.Expiry,
		System: showProperties(m.System), Properties: showProperties(m.Properties),
		body: showBody(m.Body), Protocol: m.Protocol.String(), QoS: m.QoS, Dup: m.Dup, Topic: m.Topic,
		ResponseTopic: m.ResponseTopic, Retain: m.Retain, Will: m.Will, Unrouted: m.Unrouted,
		Connection: m.Connection, Received: m.Received,
	}
}

// A page is a part of the log. Next is the n at which the next page begins.
type page struct {
	Messages []message `json:"messages"`
	Next     int       `json:"next"`
	// Forgotten is how many messages, of any device, are missing at the beginning because the hub has
	// dropped them.
	Forgotten int `json:"forgotten,omitempty"`
}

// after returns the kept messages from a position on, and how many from that position on are
// forgotten.
func after(log []hubdata.Message, from int) (kept []hubdata.Message, forgotten int) {
	if len(log) == 0 {
		return nil, 0 // empty log: the newest message is always kept
	}
	first := log[0].Sequence - 1
	return log[min(max(from-first, 0), len(log)):], max(first-from, 0)
}

// pageOf returns the messages of a device and its modules, or of all devices, from a position on.
func pageOf(log []hubdata.Message, device string, from, limit int) page {
	kept, forgotten := after(log, from)
	p := page{Messages: []message{}, Next: from + forgotten, Forgotten: forgotten}
	for i := range kept {
		if len(p.Messages) == limit {
			break
		}
		if sentBy(&kept[i], device) {
			p.Messages = append(p.Messages, showMessage(&kept[i]))
		}
		p.Next++
	}
	return p
}

func sentBy(m *hubdata.Message, device string) bool {
	return device == "" || device == m.DeviceID || device == join(m.DeviceID, m.ModuleID)
}

// last is the query parameter with how many of the newest entries of a log are wanted. Without it
// all are.
func last(into *int) field { return whole("last", 1, maxPage, into) }

// lastOf returns the newest entries of a log, or all for 0.
func lastOf[T any](log []T, count int) []T {
	if count == 0 {
		return log
	}
	return log[max(0, len(log)-count):]
}

// page returns how many messages a request can wait for: at most one answer's, and at most the kept
// ones.
func (c *control) page() int {
	if c.keep == 0 {
		return maxPage
	}
	return min(maxPage, c.keep)
}

// log returns the present log.
func (c *control) log() (log []hubdata.Message) {
	c.hub.Wait(c.ctx, func(all []hubdata.Message) bool { log = all; return true })
	return log
}

func (c *control) messages(r *call) (any, *refusal) {
	device, from, limit, count, most := "", 0, defaultPage, 0, -1
	if problem := r.query(text("device", &device), whole("from", 0, math.MaxInt, &from), whole("limit", 1, maxPage,
		&limit), last(&count), whole("body", 0, maxInput, &most)); problem != nil {
		return nil, problem
	}
	if problem := c.selector(device); problem != nil {
		return nil, problem
	}
	log := c.log()
	if count > 0 {
		from, limit = max(from, newest(log, device, count)), count
	}
	p := pageOf(log, device, from, limit)
	for i := range p.Messages {
		p.Messages[i].cut(most)
	}
	return p, nil
}

// newest returns the n of the first of the newest messages of a device, or of all devices; that of
// the first kept message if there are fewer.
func newest(log []hubdata.Message, device string, count int) int {
	if len(log) == 0 {
		return 0
	}
	for i := len(log) - 1; i >= 0; i-- {
		if sentBy(&log[i], device) {
			if count--; count == 0 {
				return log[i].Sequence - 1
			}
		}
	}
	return log[0].Sequence - 1
}

func (c *control) waitMessages(r *call) (any, *refusal) {
	device, from, count, limit := "", 0, 1, time.Duration(0)
	if problem := r.query(text("device", &device), whole("from", 0, math.MaxInt, &from), whole("count", 1, c.page(),
		&count), within(&limit)); problem != nil {
		return nil, problem
	}
	if problem := c.selector(device); problem != nil {
		return nil, problem
	}
	var got page
	matched := 0
	problem := c.waitFor(r, limit, func() any {
		return map[string]int{"messages": matched}
	}, func(ctx context.Context) error {
		return c.hub.Wait(ctx, func(log []hubdata.Message) bool {
			matched = 0 // start again: the log may have been reset
			kept, _ := after(log, from)
			for i := 0; i < len(kept) && matched < count; i++ {
				if sentBy(&kept[i], device) {
					matched++
				}
			}
			if matched < count {
				return false
			}
			got = pageOf(log, device, from, count)
			return true
		})
	})
	return got, problem
}

func (c *control) conflicts(r *call) (any, *refusal) {
	type pair struct {
		First  message `json:"first"`
		Second message `json:"second"`
	}
	all := []pair{}
	for _, p := range c.hub.Conflicts() {
		all = append(all, pair{showMessage(&p.First), showMessage(&p.Second)})
	}
	return map[string]any{"conflicts": all}, r.query()
}
