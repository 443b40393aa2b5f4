module perimeter.dev/e2e/assets/libcni

go 1.21

require github.com/containernetworking/cni v1.3.0

tool github.com/containernetworking/cni/cnitool
