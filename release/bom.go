package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// makeBOMs writes a software bill of materials in CycloneDX for each binary, from
// the build information in it.
func (r *release) makeBOMs() error {
	for _, t := range r.targets {
		bom, err := r.bomOf(t)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
			return err
		}
		if err := os.WriteFile(r.path(r.baseName(t)+".cdx.json"), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) bomOf(t target) (*cdx.BOM, error) {
	binary, err := os.ReadFile(r.binaryOf(t))
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(binary)
	main := component(cdx.ComponentTypeApplication, info.Main.Path, r.version)
	main.Description = "the command holdfast, for " + t.String()
	main.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}}
	std := component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))
	components := []cdx.Component{std}
	for _, m := range info.Deps {
		if ours(m.Path) { // from this tree, and of this version
			components = append(components, component(cdx.ComponentTypeLibrary, m.Path, r.version))
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		c := component(cdx.ComponentTypeLibrary, m.Path, m.Version)
		// The checksum of go.sum is over the module's files, not over one archive.
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		components = append(components, c)
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(sum)
	bom.Metadata = &cdx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	return bom, nil
}

func component(kind cdx.ComponentType, path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url, Scope: scopeOf(kind)}
}

func scopeOf(kind cdx.ComponentType) cdx.Scope {
	if kind == cdx.ComponentTypeLibrary {
		return cdx.ScopeRequired
	}
	return ""
}

// serial returns a UUID of version 8, which follows from the binary.
func serial(sum [sha256.Size]byte) string {
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
