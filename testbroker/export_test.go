package testbroker

import (
	"net/http"
	"net/url"
)

// Held returns how many entries the hub holds of each thing that [Options.Keep] bounds; what is
// there for each identity, of the one that has most.
func Held(h *Hub) map[string]int {
	all := make(map[string]int)
	h.log.mu.Lock()
	all["messages"], all["conflicts"], all["copies"] = len(h.log.messages.entries), len(h.log.conflicts.entries),
		len(h.log.copies)
	h.log.mu.Unlock()
	h.calls.mu.Lock()
	all["calls"], all["answers"], all["request ids"] = len(h.calls.log.entries), len(h.calls.answers.entries),
		len(h.calls.named)
	h.calls.mu.Unlock()
	h.uploads.mu.Lock()
	all["uploads"] = len(h.uploads.all.entries)
	h.uploads.mu.Unlock()
	h.uploads.store.keys.mu.Lock()
	all["upload URIs"] = len(h.uploads.store.keys.good)
	h.uploads.store.keys.mu.Unlock()
	h.uploads.store.mu.Lock()
	all["files"] = len(h.uploads.store.blobs)
	h.uploads.store.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	all["fault messages"] = len(h.orders.entries)
	for id, q := range h.queues {
		q.mu.Lock()
		all["commands"] = max(all["commands"], len(q.log.entries))
		q.mu.Unlock()
		if h.registry[id] == nil {
			all["queues of removed devices"]++
		}
	}
	for _, t := range h.twinOf {
		t.mu.Lock()
		all["twin requests"] = max(all["twin requests"], len(t.requests.entries))
		t.mu.Unlock()
	}
	return all
}

// HistoryMoves adds n entries to a history and returns how often it has moved to another array, and
// how many entries that had room for at most.
func HistoryMoves(keep, n int) (moves, room int) {
	l := history[int]{keep: keep}
	for i := range n {
		before := cap(l.entries)
		l.add(i)
		if cap(l.entries) > before {
			moves++
			room = max(room, cap(l.entries)+1)
		}
	}
	return moves, room
}

// What the tests of the parsers look at.

func ParseBag(s string) ([]Property, error) { return parseBag(s) }

func ParseTelemetry(device, module, topic string) (Message, error) {
	return parseTelemetry(identity{device, module}, topic)
}

func ParseUserName(s string) (host, device, module string, params []Property, err error) {
	u, err := parseUserName(s)
	return u.host, u.id.device, u.id.module, u.params, err
}

func ParseToken(s string) (resource string, sig []byte, expires int64, policy string, err error) {
	t, err := parseToken(s)
	return t.resource, t.sig, t.expires, t.policy, err
}

func TokenCovers(tok, host, device, module string) bool {
	t, err := parseToken(tok)
	return err == nil && t.covers(host, identity{device, module})
}

// Packets returns the first bytes of the packets in a stream that arrives in the given pieces, and
// how many bytes pass when the packet of the given number, from 1, is torn; 0 means none.
func Packets(pieces [][]byte, tear int) (first []byte, passed int) {
	var f framer
	for _, p := range pieces {
		passed += f.scan(p, func(b byte) bool {
			first = append(first, b)
			return len(first) == tear
		})
		if f.torn {
			break
		}
	}
	return first, passed
}

func (h *Hub) SetPolicyKey(name, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policies[name] = policy{keyPair{key, key}, DeviceConnect}
}

// FaultKinds returns every kind that has a name.
func FaultKinds() []FaultKind {
	var all []FaultKind
	for k := range faultTable {
		all = append(all, k)
	}
	return all
}

// SetPacketID says which packet id the last command had.
func (h *Hub) SetPacketID(id string, last uint16) {
	q := h.queuesOf(id)[0]
	q.mu.Lock()
	defer q.mu.Unlock()
	q.packetID = last
}

// CommandTopic returns the topic of a command.
func CommandTopic(device, module string, m C2D) string { return m.topic(identity{device, module}) }

// ReadOrder reads a message that asks for a fault.
func ReadOrder(m Message) (FaultMessage, bool) {
	_, f, ok := readOrder(m)
	return f, ok
}

// ParseThumbprint returns the bytes of a thumbprint.
func ParseThumbprint(s string) (string, error) { return parseThumbprint(s) }

// ErrorName returns the service's name of a code.
func ErrorName(code int) string { return errorName(code) }

func anyRequest() *httpRequest {
	r := &http.Request{URL: &url.URL{Path: "/devices/dev-1/messages/events"}}
	return &httpRequest{Request: r, hub: &Hub{}, c: &conn{}, id: identity{device: "dev-1"}}
}

// ReadBatch reads the body of a batch of dev-1; the code is that of a refusal.
func ReadBatch(text []byte) ([]Message, int) {
	all, bad := anyRequest().readBatch(text)
	if bad != nil {
		return all, bad.code
	}
	return all, 0
}

// ReadProperties reads properties by the names of headers; the code is that of a refusal.
func ReadProperties(all map[string]string) (Message, int) {
	m, bad := anyRequest().message(nil, all)
	if bad != nil {
		return m, bad.code
	}
	return m, 0
}

// ParseRequestTopic reads the topic of a request or answer of a client.
func ParseRequestTopic(s string) (op TwinOperation, rid string, version int64, status int, err error) {
	r, err := parseRequestTopic(s)
	return r.operation, r.rid, r.version, r.status, err
}

// ParseBlockList returns the IDs of the blocks in a block list.
func ParseBlockList(body []byte) (ids []string, err error) {
	list, err := parseBlockList(body)
	for _, b := range list {
		ids = append(ids, b.id)
	}
	return ids, err
}
