package servicefront

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// An exportedDevice is a line of an exported file: a device or module with its twin.
type exportedDevice struct {
	ID             string        `json:"id"`
	ModuleID       string        `json:"moduleId,omitempty"`
	ETag           string        `json:"eTag"`
	Status         string        `json:"status"`
	StatusReason   *string       `json:"statusReason,omitempty"`
	Authentication any           `json:"authentication"`
	Capabilities   capabilities  `json:"capabilities"`
	DeviceScope    string        `json:"deviceScope,omitempty"`
	TwinETag       string        `json:"twinETag"`
	Tags           document.Tree `json:"tags"`
	Properties     struct {
		Desired  document.Tree `json:"desired"`
		Reported document.Tree `json:"reported"`
	} `json:"properties"`
}

// exportedOf returns the line of a device or module. Without keys it has no authentication, unless
// that is by certificate.
func exportedOf(h *hub.Hub, id identity.Identity, excludeKeys bool) (e exportedDevice, err error) {
	d, err := documentOf(h, id)
	if err != nil {
		return e, err
	}
	t, err := h.TwinState(id)
	if err != nil {
		return e, err
	}
	v := t.View()
	e = exportedDevice{ID: d.DeviceID, ModuleID: d.ModuleID, ETag: d.ETag, Status: d.Status, StatusReason: d.StatusReason,
		Authentication: d.Authentication, Capabilities: d.Capabilities, DeviceScope: d.DeviceScope, TwinETag: v.Etag,
		Tags: v.Tags.Tree}
	if excludeKeys && d.Authentication.Type == "sas" {
		e.Authentication = nil
	}
	e.Properties.Desired, e.Properties.Reported = writable(v.Desired.Document()), writable(v.Reported.Document())
	return e, nil
}

// An export writes all devices and modules to a file, one on each line.
type export struct {
	hub         *hub.Hub
	to          place
	excludeKeys bool
}

// maxExport is the maximum size of an exported file in bytes.
const maxExport = 128 << 20

func (e *export) run(ctx context.Context, progress func(done, all int)) error {
	var file bytes.Buffer
	all := e.hub.Identities()
	for i, id := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		line, err := exportedOf(e.hub, id, e.excludeKeys)
		if err != nil {
			continue // it was removed meanwhile
		}
		raw, err := json.Marshal(line)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		file.Write(append(raw, '\n'))
		if file.Len() > maxExport {
			return fmt.Errorf("the registry needs more than %d bytes", maxExport)
		}
		progress(i+1, len(all))
	}
	return store(e.hub, e.to, file.Bytes())
}

// store writes a file to a container.
func store(h *hub.Hub, to place, content []byte) error {
	s := h.Files.Store(to.container)
	if s == nil {
		return errors.New(files.BlobNoContainer.Message)
	}
	release, bad := s.Reserve(int64(len(content)))
	if bad != nil {
		return fmt.Errorf("%s: %s", to.blob, bad.Message)
	}
	defer release()
	sum := md5.Sum(content)
	content = bytes.Clone(content) // without the room that the caller's buffer has left
	part := hubdata.BlobBlock{Size: int64(len(content)), SHA256: sha256.Sum256(content), Content: content}
	_, bad = s.Put(hubdata.Blob{Name: to.blob, ContentType: "text/plain", MD5: sum[:], Stored: h.Now(),
		Blocks: []hubdata.BlobBlock{part}}, files.Anyway)
	if bad != nil {
		return fmt.Errorf("%s: %s", to.blob, bad.Message)
	}
	return nil
}
