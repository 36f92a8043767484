package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// printSBOM writes the bill of materials of one binary: the module, the Go
// toolchain's library and every module linked, with licences and the hashes
// that go.sum holds. It has no date and no serial number, so equal binaries
// have equal bills.
func printSBOM(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	modules, err := linked([]string{path})
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		Type: cdx.ComponentTypeApplication, BOMRef: "main", Name: filepath.Base(path), Version: version(info.Main.Version),
		PackageURL: "pkg:golang/" + info.Main.Path, Licenses: spdx([]string{"Apache-2.0"}),
	}}
	components := []cdx.Component{{
		Type: cdx.ComponentTypeLibrary, BOMRef: "std", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"),
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"), Licenses: spdx([]string{"BSD-3-Clause"}),
	}}
	needs := []string{"std"}
	for _, m := range modules {
		found, err := licences(m)
		if err != nil {
			return err
		}
		url := "pkg:golang/" + m.Path + "@" + m.Version
		components = append(components, cdx.Component{
			Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: m.Path, Version: m.Version, PackageURL: url, Licenses: spdx(found), Hashes: hashes(m.Sum),
		})
		needs = append(needs, url)
	}
	bom.Components, bom.Dependencies = &components, &[]cdx.Dependency{{Ref: "main", Dependencies: &needs}}
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

func version(v string) string {
	if v == "" || v == "(devel)" {
		return "unreleased"
	}
	return v
}

func spdx(names []string) *cdx.Licenses {
	var all cdx.Licenses
	for _, n := range names {
		all = append(all, cdx.LicenseChoice{License: &cdx.License{ID: n}})
	}
	return &all
}

// hashes is go.sum's h1: (a SHA-256 over the module's files, golang.org/x/mod/
// sumdb/dirhash) as CycloneDX writes one.
func hashes(sum string) *[]cdx.Hash {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	if err != nil || len(raw) == 0 {
		return nil
	}
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
}
