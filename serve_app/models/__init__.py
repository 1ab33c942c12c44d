"""A model's life cycle, in the order of these files:

download              weights from elsewhere, with their SHA-256
card, registry        a model's description, and the place that has all models
rollout               the document in the store that says which mesh uses which model, and its changes
loader                one process's weights in memory, for which snapshots never wait long
served                the models of one session
comparison            figures of two models, with intervals
recorded_comparison   the same over recordings
shadow                scores with a trial's other model, and stores the results
admin                 people's questions and changes, and the limits that end a trial
"""
