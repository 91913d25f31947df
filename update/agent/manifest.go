package agent

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// Limits of texts and lists in a manifest. Sums of lists are bounded by MaxManifest.
const (
	maxText       = 255
	maxKinds      = 64
	maxProperties = 16
	maxRelated    = 16
)

// ParseManifest reads a manifest of version 4 or 5. Unknown members are skipped everywhere. It does
// not verify the signature, and the result refers to text. The error, of Kind Invalid, names the
// member.
func ParseManifest(text []byte) (*Manifest, error) {
	if len(text) > MaxManifest {
		return nil, badManifest("the text", "has more than 64 KB")
	}
	if !jsonscan.IsObject(text) {
		return nil, badManifest("the text", "is no JSON object in UTF-8")
	}
	var r manifestReader
	version := jsonscan.Value(text, "manifestVersion")
	if v := strings.Trim(string(version), `"`); v != "4" && v != "5" {
		r.fail("manifestVersion", "is not 4 or 5")
	}
	m := &Manifest{ID: r.updateID(jsonscan.Value(text, "updateId"))}
	m.Compatibility = r.compatibility(jsonscan.Value(text, "compatibility"))
	m.Files = r.files("files", jsonscan.Value(text, "files"))
	m.Steps = r.steps(jsonscan.Value(jsonscan.Value(text, "instructions"), "steps"), m)
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

func badManifest(member, what string) error {
	return fault(transport.Invalid, "manifest: "+peerText(member)+" "+what)
}

// manifestReader keeps the first error. Later ones may follow from it.
type manifestReader struct{ err error }

func (r *manifestReader) fail(member, what string) {
	if r.err == nil {
		r.err = badManifest(member, what)
	}
}

// text returns the value of a text.
func (r *manifestReader) text(member string, raw []byte) string {
	text := jsonscan.Text(raw)
	if raw != nil && raw[0] != '"' || len(text) > maxText {
		r.fail(member, "is no text of at most 255 bytes")
	}
	return text
}

// needed returns the value of a text that must not be empty.
func (r *manifestReader) needed(member string, raw []byte) string {
	text := r.text(member, raw)
	if text == "" {
		r.fail(member, "is missing or empty")
	}
	return text
}

// object returns raw if it is an object or missing.
func (r *manifestReader) object(member string, raw []byte) []byte {
	if raw != nil && raw[0] != '{' {
		r.fail(member, "is no object")
		return nil
	}
	return raw
}

// members passes the members of an object to show, until limit.
func (r *manifestReader) members(member string, raw []byte, limit int, show func(name string, value []byte)) {
	n := 0
	ok := raw == nil || jsonscan.Members(raw, func(name string, value []byte) {
		if n++; n <= limit {
			show(name, value)
		}
	})
	if !ok || n > limit {
		r.fail(member, "is no object with at most "+strconv.Itoa(limit)+" members")
	}
}

// elements passes the elements of an array to show, until limit, each with its name for errors.
func (r *manifestReader) elements(member string, raw []byte, limit int, show func(name string, value []byte)) {
	n := 0
	ok := raw == nil || jsonscan.Elements(raw, func(value []byte) {
		if n++; n <= limit {
			show(member+"["+strconv.Itoa(n-1)+"]", value)
		}
	})
	if !ok || n > limit {
		r.fail(member, "is no array with at most "+strconv.Itoa(limit)+" elements")
	}
}

func (r *manifestReader) updateID(raw []byte) UpdateID {
	part := func(name string) string { return r.needed("updateId."+name, jsonscan.Value(raw, name)) }
	id := UpdateID{Provider: part("provider"), Name: part("name"), Version: part("version")}
	if !id.Valid() { // the device could not report it
		r.fail("updateId", "is none that the service takes")
	}
	return id
}

func (r *manifestReader) compatibility(raw []byte) (kinds []Properties) {
	r.elements("compatibility", raw, maxKinds, func(name string, kind []byte) {
		var p Properties
		r.members(name, kind, maxProperties, func(key string, value []byte) {
			p = append(p, Property{Name: key, Value: r.text(name+"."+key, value)})
		})
		if len(p) == 0 {
			r.fail(name, "has no properties")
		}
		kinds = append(kinds, p)
	})
	if len(kinds) == 0 {
		r.fail("compatibility", "is missing or empty")
	}
	return kinds
}

func (r *manifestReader) files(member string, raw []byte) (files []File) {
	limit := MaxFiles
	if member != "files" {
		limit = maxRelated
	}
	r.members(member, raw, limit, func(id string, value []byte) {
		name := member + "." + id
		if id == "" || len(id) > maxText || fileByID(files, id) != nil {
			r.fail(name, "has an id that is empty, longer than 255 bytes, or that of another file")
		}
		f := r.file(name, value, member == "files")
		f.ID = id
		files = append(files, f)
	})
	return files
}

// file reads a file. Only the outer ones can have related files.
func (r *manifestReader) file(name string, raw []byte, outer bool) File {
	f := File{Name: r.needed(name+".fileName", jsonscan.Value(raw, "fileName"))}
	if !plainName(f.Name) {
		r.fail(name+".fileName", "is no plain file name: it names a folder or has control characters")
	}
	size, ok := jsonscan.Int(jsonscan.Value(raw, "sizeInBytes"))
	if !ok || size < 0 || size > MaxFileSize {
		r.fail(name+".sizeInBytes", "is no number from 0 to 2^40")
	}
	f.Size = size
	sum := jsonscan.Text(jsonscan.Value(jsonscan.Value(raw, "hashes"), "sha256"))
	decoded, err := base64.StdEncoding.Strict().DecodeString(sum)
	if err != nil || len(decoded) != len(f.SHA256) {
		r.fail(name+".hashes.sha256", "is not 32 bytes in Base64")
	}
	copy(f.SHA256[:], decoded)
	f.Properties = r.object(name+".properties", jsonscan.Value(raw, "properties"))
	if outer {
		f.Related = r.files(name+".relatedFiles", jsonscan.Value(raw, "relatedFiles"))
		f.DownloadHandler = r.text(name+".downloadHandler.id", jsonscan.Value(jsonscan.Value(raw, "downloadHandler"), "id"))
	}
	return f
}

// plainName reports whether a handler can use the name for a file in a folder of its own.
func plainName(name string) bool {
	for i := range len(name) {
		if name[i] < ' ' || name[i] == 0x7f || name[i] == '/' || name[i] == '\\' || name[i] == ':' {
			return false
		}
	}
	return name != "." && name != ".."
}

func (r *manifestReader) steps(raw []byte, m *Manifest) (steps []Step) {
	r.elements("instructions.steps", raw, MaxSteps, func(name string, value []byte) {
		steps = append(steps, r.step(name, value, m))
	})
	if len(steps) == 0 {
		r.fail("instructions.steps", "is missing or empty")
	}
	return steps
}

func (r *manifestReader) step(name string, raw []byte, m *Manifest) Step {
	s := Step{Handler: r.text(name+".handler", jsonscan.Value(raw, "handler"))}
	known := func(member, id string) {
		if fileByID(m.Files, id) == nil {
			r.fail(member, "is not the id of a file in files")
		}
	}
	switch kind := r.text(name+".type", jsonscan.Value(raw, "type")); kind {
	case "", "inline":
		if s.Handler == "" {
			r.fail(name+".handler", "is missing or empty")
		}
	case "reference":
		s.Manifest = r.needed(name+".detachedManifestFileId", jsonscan.Value(raw, "detachedManifestFileId"))
		known(name+".detachedManifestFileId", s.Manifest)
	default:
		r.fail(name+".type", "is not inline or reference")
	}
	r.elements(name+".files", jsonscan.Value(raw, "files"), MaxFiles, func(member string, value []byte) {
		id := r.needed(member, value)
		known(member, id)
		s.Files = append(s.Files, id)
	})
	s.Properties = r.object(name+".handlerProperties", jsonscan.Value(raw, "handlerProperties"))
	s.InstalledCriteria = r.text(name+".handlerProperties.installedCriteria",
		jsonscan.Value(s.Properties, "installedCriteria"))
	return s
}

// fileByID returns the file with the id, nil if there is none.
func fileByID(files []File, id string) *File {
	for i := range files {
		if files[i].ID == id {
			return &files[i]
		}
	}
	return nil
}
