"""image.py --out=OUT.tar [OPTION...] NAME FILE[:DEST]...: a one-layer OCI image of static programs, the same bytes each time.

The first file is the entry point. The image contains only the files, a CA bundle, /tmp and a user to run as.
"""
import argparse, hashlib, io, json, os, pathlib, tarfile

parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("--out", required=True)
parser.add_argument("--user", default="0:0")
parser.add_argument("--env", action="append", default=[], metavar="K=V")
parser.add_argument("--label", action="append", default=[], metavar="K=V")
parser.add_argument("--ca", default="/etc/ssl/certs/ca-certificates.crt")
parser.add_argument("name")
parser.add_argument("files", nargs="+")
args = parser.parse_args()

# The name as the kubelet requests it: with a registry, a path and a tag.
name = args.name if "." in args.name.partition("/")[0] else "docker.io/" + ("" if "/" in args.name else "library/") + args.name
name += "" if ":" in name.rpartition("/")[2] else ":latest"


def tar(entries):
    """A tar archive of (path, mode, content), without times and owners. An entry without content is a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, mode, content in entries:
            info = tarfile.TarInfo(path)
            info.mode = mode
            info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            info.size = len(content or b"")
            archive.addfile(info, io.BytesIO(content or b""))
    return out.getvalue()


programs = [(source, dest or os.path.basename(source)) for source, _, dest in (f.partition(":") for f in args.files)]
files = {dest.lstrip("/"): (0o755, pathlib.Path(source).read_bytes()) for source, dest in programs}
files["etc/passwd"] = (0o644, b"root:x:0:0::/:\nnonroot:x:65532:65532::/tmp:\n")
files["etc/ssl/certs/ca-certificates.crt"] = (0o644, pathlib.Path(args.ca).read_bytes())
folders = {str(p): 0o755 for f in files for p in pathlib.PurePath(f).parents if str(p) != "."} | {"tmp": 0o1777}
layer = tar([(path, mode, None) for path, mode in sorted(folders.items())] + [(path, *files[path]) for path in sorted(files)])

blobs = {}


def blob(kind, content, **more):
    digest = hashlib.sha256(content).hexdigest()
    blobs["blobs/sha256/" + digest] = content
    return {"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(content), **more}


def document(value):
    return json.dumps(value, sort_keys=True).encode()


data = blob("layer.v1.tar", layer)
config = blob("config.v1+json", document({
    "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [data["digest"]]},
    "config": {"User": args.user, "Entrypoint": ["/" + programs[0][1].lstrip("/")], "WorkingDir": "/",
               "Env": ["PATH=/:/bin:/usr/bin", *args.env], "Labels": dict(label.split("=", 1) for label in args.label)}}))
manifest = blob("manifest.v1+json", document({
    "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [data]}),
    annotations={"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]})
index = document({"schemaVersion": 2, "manifests": [manifest]})
pathlib.Path(args.out).write_bytes(tar(
    (path, 0o644, content) for path, content in
    {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": index, **blobs}.items()))
print(name, manifest["digest"])
