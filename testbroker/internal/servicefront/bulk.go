package servicefront

import (
	"errors"
	"net/http"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// maxBulk is the maximum number of identities of a bulk operation, as in the service's documents.
const maxBulk = 100

// codeTwice is the error for an identity that a bulk operation names a second time.
const codeTwice = 400011

// A bulkItem is a change of one identity.
type bulkItem struct {
	identityDocument
	ID         string `json:"id"` // of the device, in place of deviceId
	ImportMode string `json:"importMode"`
	TwinETag   string `json:"twinETag"`
	twinDocument
}

func (b *bulkItem) identity() identity.Identity {
	return identity.Identity{Device: b.DeviceID, Module: b.ModuleID}
}

// A bulkResult is the answer to a bulk operation. Identities without an error have been changed.
type bulkResult struct {
	IsSuccessful bool          `json:"isSuccessful"`
	Errors       []bulkError   `json:"errors"`
	Warnings     []bulkWarning `json:"warnings"`
}

type bulkError struct {
	DeviceID    string `json:"deviceId"`
	ModuleID    string `json:"moduleId,omitempty"`
	ErrorCode   int    `json:"errorCode"`
	ErrorStatus string `json:"errorStatus"`
}

// A bulkWarning says that an identity was registered, but its twin was refused.
type bulkWarning struct {
	DeviceID      string `json:"deviceId"`
	WarningCode   string `json:"warningCode"`
	WarningStatus string `json:"warningStatus"`
}

// A bulkMode is what a bulk operation does with an identity.
type bulkMode struct {
	registry func(h *hub.Hub, b *bulkItem, etag string) error // nil = nothing
	ifMatch  bool                                             // the ETag must be right
	twin     bool                                             // also writes the twin
}

// bulkModes are keyed by the import mode in lower case. An item without a mode has the first one of
// the service's list, createOrUpdate.
var bulkModes = map[string]bulkMode{
	"":                          {registry: createOrUpdate, twin: true},
	"createorupdate":            {registry: createOrUpdate, twin: true},
	"createorupdateifmatchetag": {registry: createOrUpdate, ifMatch: true, twin: true},
	"create":                    {registry: bulkCreate, twin: true},
	"update":                    {registry: bulkUpdate},
	"updateifmatchetag":         {registry: bulkUpdate, ifMatch: true},
	"delete":                    {registry: bulkDelete},
	"deleteifmatchetag":         {registry: bulkDelete, ifMatch: true},
	"updatetwin":                {twin: true},
	"updatetwinifmatchetag":     {twin: true, ifMatch: true},
}

// changeInBulk changes identities, each independently of the others.
func changeInBulk(q *web.Request) (web.Answer, error) {
	var all []bulkItem
	if err := q.ReadArray(&all); err != nil {
		return web.Answer{}, err
	}
	if len(all) == 0 || len(all) > maxBulk {
		return web.Answer{}, q.Hub.ServiceError(hub.CodeArgumentInvalid, "%d devices, want 1 to %d", len(all), maxBulk)
	}
	result := bulkResult{Errors: []bulkError{}, Warnings: []bulkWarning{}}
	seen := make(map[identity.Identity]bool)
	for i := range all {
		b := &all[i]
		if b.ID != "" {
			b.DeviceID = b.ID
		}
		id := b.identity()
		var warning, err error
		if seen[id] {
			err = web.Errorf(codeTwice, "%s comes twice", id)
		} else {
			seen[id] = true
			warning, err = b.change(q.Hub)
		}
		if err != nil {
			bad := web.AsServiceError(err)
			result.Errors = append(result.Errors, bulkError{id.Device, id.Module, bad.Code, bad.Text})
		}
		if warning != nil {
			result.Warnings = append(result.Warnings, bulkWarning{id.Device, "DeviceRegisteredWithoutTwin",
				web.AsServiceError(warning).Text})
		}
	}
	result.IsSuccessful = len(result.Errors) == 0
	a := web.AnswerJSON(result, "")
	if !result.IsSuccessful {
		a.Status = http.StatusBadRequest
	}
	return a, nil
}

// change changes an identity. The warning says that only its twin was refused.
func (b *bulkItem) change(h *hub.Hub) (warning, err error) {
	mode, ok := bulkModes[strings.ToLower(b.ImportMode)]
	if !ok {
		return nil, web.Errorf(hub.CodeArgumentInvalid, "importMode %.40q is unknown", b.ImportMode)
	}
	if mode.registry == nil {
		return nil, b.writeTwin(h, mode)
	}
	etag := "*"
	if mode.ifMatch {
		etag = strings.Trim(b.ETag, `"`)
	}
	if err := mode.registry(h, b, etag); err != nil || !mode.twin {
		return nil, err
	}
	return b.writeTwin(h, bulkMode{}), nil
}

// writeTwin merges tags and desired properties into the twin.
func (b *bulkItem) writeTwin(h *hub.Hub, mode bulkMode) error {
	u := hub.TwinUpdate{Desired: writable(b.Properties.Desired), Tags: writable(b.Tags)}
	if mode.ifMatch {
		if u.Etag = strings.Trim(b.TwinETag, `"`); u.Etag == "" {
			return h.ServiceError(hub.CodePreconditionFailed, "twinETag is missing")
		}
	}
	_, err := h.Update(b.identity(), u)
	return err
}

func bulkCreate(h *hub.Hub, b *bulkItem, _ string) error {
	r, err := b.read(h)
	if err != nil {
		return err
	}
	return createIdentity(h, b.identity(), r)
}

func bulkUpdate(h *hub.Hub, b *bulkItem, etag string) error {
	r, err := b.read(h)
	if err != nil {
		return err
	}
	return updateIdentity(h, b.identity(), r, etag)
}

// createOrUpdate creates an identity. If it exists, it is updated.
func createOrUpdate(h *hub.Hub, b *bulkItem, etag string) error {
	err := bulkCreate(h, b, etag)
	if e := (*hubdata.ServiceError)(nil); errors.As(err, &e) && e.Code/1000 == http.StatusConflict {
		return bulkUpdate(h, b, etag)
	}
	return err
}

func bulkDelete(h *hub.Hub, b *bulkItem, etag string) error {
	return removeIdentity(h, b.identity(), etag)
}
