# Sourced by the other scripts: both MPIs go between hosts by TCP on the lab's network, whatever else they find on this
# machine, with the settings with which large messages were fastest there. Options of mpirun override them.

# Open MPI. Unbound: else the first ranks of all hosts share one core; yielding: there may be more ranks than cores.
# Large messages leave as they are (flags 1: send) and in large pieces through small buffers: presumably what a
# rendezvous waits for stands behind all that fills the buffers. MPI_Allreduce of 16 MiB on 4 hosts: 420 to 240 ms.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,sm,self OMPI_MCA_btl_tcp_if_include=e0
export OMPI_MCA_btl_tcp_flags=1 OMPI_MCA_btl_tcp_sndbuf=262144 OMPI_MCA_btl_tcp_rcvbuf=262144
export OMPI_MCA_btl_tcp_eager_limit=524288 OMPI_MCA_btl_tcp_rndv_eager_limit=524288
export OMPI_MCA_btl_tcp_max_send_size=1048576
export PMIX_MCA_psec=native # Slurm's PMIx offers munge first: the wheel has not got it, and says so at length

# MPICH. UCX would take all hosts for one machine; ranks of one host do not need it. No rendezvous either.
export HYDRA_IFACE=e0 UCX_TLS=tcp,self UCX_NET_DEVICES=e0 UCX_RNDV_THRESH=inf
