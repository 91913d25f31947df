package testbroker

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// batchType is the content type of a batch. Without it an array in JSON is the body of a single
// message.
const batchType = "application/vnd.microsoft.iothub.json"

// A batchEntry is a message of a batch. Properties have the names of headers.
type batchEntry struct {
	Body       *string            `json:"body"`
	Base64     *bool              `json:"base64Encoded"` // nil = true: there are clients that leave it out
	Properties map[string]*string `json:"properties"`
}

// readBatch reads the messages of a batch: all, or none if one of them is not good.
func (q *httpRequest) readBatch(text []byte) ([]Message, *httpError) {
	if !utf8.Valid(text) {
		return nil, httpErrorf(400012, "batch is not UTF-8")
	}
	var entries []batchEntry
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, httpErrorf(400012, "batch: %v", err)
	}
	if len(entries) == 0 || len(entries) > maxBatch {
		return nil, httpErrorf(400004, "batch of %d messages, 1 to %d are allowed", len(entries), maxBatch)
	}
	all := make([]Message, len(entries))
	total := 0
	for i, e := range entries {
		body, bad := e.body()
		if bad == nil {
			all[i], bad = q.entry(e, body)
		}
		if bad != nil {
			bad.text = fmt.Sprintf("message %d of the batch: %s", i+1, bad.text)
			return nil, bad
		}
		if total += sizeOf(&all[i]); total > MaxMessage {
			return nil, httpErrorf(413001, "batch of more than %d bytes", MaxMessage)
		}
	}
	return all, nil
}

func (q *httpRequest) entry(e batchEntry, body []byte) (Message, *httpError) {
	properties := make(map[string]string, len(e.Properties))
	for name, value := range e.Properties {
		if value == nil {
			return Message{}, httpErrorf(400004, "property %q is null", name)
		}
		properties[name] = *value
	}
	return q.message(body, properties)
}

func (e batchEntry) body() ([]byte, *httpError) {
	switch {
	case e.Body == nil:
		return nil, httpErrorf(400026, "there is no body")
	case e.Base64 != nil && !*e.Base64:
		return []byte(*e.Body), nil
	}
	body, err := base64.StdEncoding.DecodeString(*e.Body)
	if err != nil {
		return nil, httpErrorf(400006, "body: %v", err)
	}
	return body, nil
}
