"""The life of a model, in the order of its files:

download              weights from elsewhere, with their SHA-256
card, registry        what a model is, and the place that has them all
rollout               which mesh uses which model: the document in the store, and its changes
loader                weights in the memory of one process, for snapshots, which never wait long
served                the models of one session
comparison            figures of two models, with intervals
recorded_comparison   the same over recordings
shadow                scores with the other model of a trial, and what the store keeps of it
admin                 what people ask and change, and the limits that end a trial
"""
