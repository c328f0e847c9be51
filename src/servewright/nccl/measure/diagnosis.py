"""What can keep NCCL from being measured, by name, and what to do about each."""

from __future__ import annotations

from typing import Any

WHAT_TO_DO = {
    "bad-job": "correct the job",
    "model-config": "the size of messages follows from hidden_size and dtype of the model's config.json, which the "
    "service's user must be able to read",
    "torch-missing": "run the probe with the Python of the engine's virtual environment",
    "cuda-missing": "check that nvidia-smi works, that /dev/nvidia* may be read and written by this user, and that "
    "torch is a CUDA build that this driver supports",
    "nccl-missing": "install the torch build with NCCL (torch.distributed.is_nccl_available() is false here)",
    "too-few-gpus": "measure with as many ranks as there are visible GPUs; with one GPU there is no NCCL traffic and "
    "nothing to tune",
    "mixed-gpus": "the slowest GPU sets the pace and NCCL treats the group differently; measure the GPUs of one model, "
    "chosen with CUDA_VISIBLE_DEVICES, unless the service really spans both",
    "gpus-in-use": "stop the services that hold these GPUs, or the times are wrong",
    "driver-hang": "a CUDA call did not return; look for Xid lines in the kernel log and restart the host if a GPU "
    "has fallen off the bus",
    "initialisation-failed": "NCCL refused to start with these settings; its own words are in the detail",
    "initialisation-hang": "the ranks did not find one another; check NCCL_SOCKET_IFNAME and a firewall on the "
    "loopback and local interfaces",
    "first-collective-hang": "NCCL started and the first message never arrived, the sign of an IOMMU that translates "
    "or of PCIe ACS between the GPUs; boot with iommu=pt (or amd_iommu=off / intel_iommu=off), switch ACS off on the "
    "root ports and on the switch ports (lspci -vvv, ACSCtl), and compare with NCCL_P2P_DISABLE=1 to confirm",
    "hang": "raise the time limit if the case was only slow; else read the stage in the detail",
    "out-of-memory": "free the GPUs or measure smaller messages and fewer channels",
    "no-algorithm": "NCCL_ALGO and NCCL_PROTO leave this collective no way to run; widen one of them",
    "unsupported": "this backend does not have the collective",
    "wrong-data": "the sums were wrong: do not serve with this environment; with P2P in use, check the IOMMU and ACS "
    "as for a hang, and LL128 must not be forced on links that do not keep 128-byte stores together",
    "rank-failed": "a rank ended early; its last words are in the detail",
    "unkillable": "a rank did not end even on SIGKILL, so the driver holds it; restart the host",
}


def diagnosis(name: str, detail: str = "", stops: bool = True) -> dict[str, Any]:
    return {"name": name, "detail": detail, "to_do": WHAT_TO_DO[name], "stops": stops}
