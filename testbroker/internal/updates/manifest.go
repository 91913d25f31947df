package updates

import (
	"encoding/json"
	"time"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// A manifest is what a device gets of an update.
type manifest struct {
	Version       string              `json:"manifestVersion"`
	ID            updatedata.UpdateID `json:"updateId"`
	Compatibility []map[string]string `json:"compatibility"`
	Instructions  instructions        `json:"instructions"`

	Files   map[string]*fileDocument `json:"files"`
	Created string                   `json:"createdDateTime"`
}

type instructions struct {
	Steps []step `json:"steps"`
}

type step struct {
	Type        string               `json:"type,omitempty"`
	Description string               `json:"description,omitempty"`
	Handler     string               `json:"handler,omitempty"`
	Files       []string             `json:"files,omitempty"` // ids
	Properties  json.RawMessage      `json:"handlerProperties,omitempty"`
	Reference   *updatedata.UpdateID `json:"updateId,omitempty"`
	Manifest    string               `json:"detachedManifestFileId,omitempty"`
}

type fileDocument struct {
	FileName        string                   `json:"fileName"`
	Size            int64                    `json:"sizeInBytes"`
	Hashes          hashes                   `json:"hashes"`
	Properties      map[string]string        `json:"properties,omitempty"`
	Related         map[string]*fileDocument `json:"relatedFiles,omitempty"`
	DownloadHandler *downloadHandler         `json:"downloadHandler,omitempty"`
}

type hashes struct {
	SHA256 string `json:"sha256"`
}

type downloadHandler struct {
	ID string `json:"id"`
}

// newManifest returns the manifest of an update but for its references, and adds its files to the
// release.
func newManifest(r *release) *manifest {
	u := &r.update
	m := &manifest{Version: u.Version, ID: u.ID, Compatibility: u.Compatibility, Files: make(map[string]*fileDocument),
		Created: r.created.Format(time.RFC3339Nano)}
	ids := make(map[string]string) // by name
	for _, of := range u.Files {
		f, doc := r.add(&of)
		for _, related := range of.Related {
			g, part := r.add(&related)
			if doc.Related == nil {
				doc.Related = make(map[string]*fileDocument)
			}
			doc.Related[g.id] = part
		}
		if of.DownloadHandler != "" {
			doc.DownloadHandler = &downloadHandler{of.DownloadHandler}
		}
		m.Files[f.id], ids[of.Name] = doc, f.id
	}
	for _, of := range u.Steps {
		one := step{Type: "inline", Description: of.Description, Handler: of.Handler, Properties: of.Properties}
		if of.Handler == "" {
			one.Type, one.Reference = "reference", &of.Reference
		}
		for _, name := range of.Files {
			one.Files = append(one.Files, ids[name])
		}
		m.Instructions.Steps = append(m.Instructions.Steps, one)
	}
	return m
}

// add adds a file to the release.
func (r *release) add(of *updatedata.File) (*file, *fileDocument) {
	f := newFile(r.update.ID, of.Name, of.Content, r.created)
	r.files = append(r.files, f)
	doc := f.document()
	doc.Properties = of.Properties
	return f, doc
}
