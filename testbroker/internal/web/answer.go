package web

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// slowPieces is the number of pieces of SlowAnswer.
const slowPieces = 8

// Delivery is the way in which an answer is sent.
type Delivery uint8

const (
	deliverPlain         Delivery = iota
	DeliverNothing                // no answer: the connection has ended, or the client is to believe so
	DeliverAndClose               // then end the connection
	deliverHalf                   // send half of it
	deliverSlowly                 // send it in pieces
	deliverGarbage                // send garbage instead
	deliverWithoutLength          // omit its length
)

// An Answer is the answer to a request.
type Answer struct {
	Status int
	Header http.Header // may be nil
	Body   []byte
	Rate   int // bytes of the body a second; 0 = no limit

	// Set by faults.
	skew     time.Duration // skew of the header Date
	Delivery Delivery
	Fault    *faults.Injected // the fault that sets Delivery
}

func (q *Request) send(a Answer) {
	q.Hub.Records.Saved() // before the client learns of a change
	if a.Header == nil {
		a.Header = make(http.Header)
	}
	a.Header["Date"] = []string{q.Hub.Now().Add(a.skew).UTC().Format(http.TimeFormat)}
	switch {
	case a.Delivery == DeliverNothing:
		panic(http.ErrAbortHandler)
	case a.Delivery == deliverPlain:
		q.sendPlain(a)
	case q.ProtoMajor == 2:
		q.Happened(a.Fault)
		q.sendStream(a)
	default:
		q.Happened(a.Fault)
		q.sendRaw(a)
	}
}

func (a *Answer) hasLength() bool {
	return a.Status != http.StatusNoContent && a.Delivery != deliverWithoutLength
}

func (q *Request) sendPlain(a Answer) {
	maps.Copy(q.w.Header(), a.Header)
	if a.hasLength() && a.Header.Get("Content-Length") == "" { // an answer to HEAD states that of GET
		q.w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	q.w.WriteHeader(a.Status)
	if a.Rate > 0 {
		q.sendPaced(a)
		return
	}
	q.w.Write(a.Body) // writes nothing for HEAD and for statuses without a body
}

// pace is the time between the parts of a body with a rate.
const pace = 100 * time.Millisecond

// sendPaced sends a body at its rate.
func (q *Request) sendPaced(a Answer) {
	rc := http.NewResponseController(q.w)
	part := max(a.Rate/int(time.Second/pace), 1)
	wait := time.Duration(part) * time.Second / time.Duration(a.Rate)
	for p := range slices.Chunk(a.Body, part) {
		if !q.Sleep(wait) {
			panic(http.ErrAbortHandler)
		}
		q.w.Write(p)
		rc.Flush()
	}
}

// sendStream sends an answer over HTTP/2, where all deliveries except garbage affect only the
// stream.
func (q *Request) sendStream(a Answer) {
	rc := http.NewResponseController(q.w)
	switch a.Delivery {
	case DeliverAndClose:
		a.Header.Set("Connection", "close") // sent as GOAWAY
		q.sendPlain(a)
	case deliverWithoutLength:
		maps.Copy(q.w.Header(), a.Header)
		q.w.WriteHeader(a.Status)
		rc.Flush()
		q.w.Write(a.Body)
	case deliverHalf:
		if len(a.Body) > 1 {
			maps.Copy(q.w.Header(), a.Header)
			q.w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
			q.w.Write(a.Body[:len(a.Body)/2])
			rc.Flush()
		}
		panic(http.ErrAbortHandler)
	case deliverSlowly:
		step := a.Fault.Fault.Delay / slowPieces
		body := a.Body
		a.Body = nil
		if !q.Sleep(step) {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(q.w.Header(), a.Header)
		if a.hasLength() {
			q.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
		q.w.WriteHeader(a.Status)
		rc.Flush()
		q.inPieces(body, slowPieces-1, step, func(p []byte) {
			q.w.Write(p)
			rc.Flush()
		})
	case deliverGarbage:
		q.C.Write(GarbageHTTP(&a.Fault.Fault, 2))
		q.C.CloseGracefully(hub.FaultError(fault.GarbageAnswer))
		panic(http.ErrAbortHandler)
	case deliverPlain, DeliverNothing:
	}
}

// sendRaw sends an answer over HTTP/1.1: it hijacks the connection, writes the answer itself, and
// ends the connection.
func (q *Request) sendRaw(a Answer) {
	conn, _, err := http.NewResponseController(q.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer q.Conn.end()
	conn.SetDeadline(time.Time{})
	text := a.text(q.Request)
	switch a.Delivery {
	case deliverHalf:
		half := len(text) - (len(a.Body)+1)/2
		if len(a.Body) == 0 {
			half = len(text) / 2
		}
		conn.Write(text[:half])
	case deliverSlowly:
		q.inPieces(text, slowPieces, a.Fault.Fault.Delay/slowPieces, func(p []byte) { conn.Write(p) })
	case deliverGarbage:
		conn.Write(GarbageHTTP(&a.Fault.Fault, 1))
	default:
		conn.Write(text)
	}
	q.C.CloseGracefully(hub.FaultError(a.Fault.Fault.Kind))
}

func (a *Answer) text(r *http.Request) []byte {
	answer := http.Response{
		StatusCode: a.Status, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: a.Header,
		Body:          io.NopCloser(bytes.NewReader(a.Body)),
		ContentLength: -1,
		Close:         a.Delivery != DeliverAndClose, // DeliverAndClose does not announce the end
	}
	if a.hasLength() {
		answer.ContentLength = int64(len(a.Body))
	}
	var b bytes.Buffer
	answer.Write(&b) // cannot fail
	return b.Bytes()
}

// inPieces writes p in n pieces, with a wait before each.
func (q *Request) inPieces(p []byte, n int, wait time.Duration, write func([]byte)) {
	for i := range n {
		if !q.Sleep(wait) {
			return
		}
		if piece := p[i*len(p)/n : (i+1)*len(p)/n]; len(piece) > 0 {
			write(piece)
		}
	}
}

func GarbageHTTP(f *fault.Fault, major int) []byte {
	switch {
	case len(f.Bytes) > 0:
		return f.Bytes
	case major == 2:
		return []byte{0, 0, 0, 6, 0, 0, 0, 0, 0}
	}
	return []byte("\x00\xffno status\r\n\r\n")
}

// AnswerJSON returns an answer with a JSON body.
func AnswerJSON(v any, etag string) Answer {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // v is always encodable
	}
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	if etag != "" {
		header.Set("ETag", `"`+etag+`"`)
	}
	return Answer{Status: http.StatusOK, Header: header, Body: bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
}
